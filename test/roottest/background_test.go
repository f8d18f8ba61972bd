package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// startRun starts a background run.
func startRun(t testing.TB, m *manager, id chat.ID, spec chat.RunSpec) chat.Run {
	t.Helper()
	r, err := m.StartRun(operator(t.Context()), id, spec)
	must.True(t, err == nil, "start %+v: %v", spec, err)
	return r
}

// awaitRun waits until a run has ended.
func awaitRun(t testing.TB, m interface {
	ShowRun(context.Context, chat.ID, string) (chat.Run, error)
}, id chat.ID, run string) chat.Run {
	t.Helper()
	var r chat.Run
	until(t, "run "+run+" ends", func() bool {
		r = must.Get(m.ShowRun(operator(t.Context()), id, run))(t)
		return r.State != chat.RunRunning
	})
	return r
}

// awaitOutput waits until a run has printed text.
func awaitOutput(t testing.TB, m *manager, id chat.ID, run, text string) {
	t.Helper()
	until(t, fmt.Sprintf("run %s prints %q", run, text), func() bool {
		r := must.Get(m.ShowRun(operator(t.Context()), id, run))(t)
		return strings.Contains(r.Result.Stdout, text)
	})
}

// supervisors are the supervisors of runs of this test's daemons.
func supervisors(t testing.TB) []int {
	t.Helper()
	entries := must.Get(os.ReadDir("/proc"))(t)
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if string(line) == "chatd-shim\x00mind\x00" && uidOf(pid) == testUIDs.High {
			found = append(found, pid)
		}
	}
	return found
}

// uidOf is the real uid of a process, 0 where it has ended.
func uidOf(pid int) (uid uint32) {
	field, _ := statusField(pid, "Uid")
	_, _ = fmt.Sscan(field, &uid)
	return uid
}

// TestBackground: a background run has an id of its chat, is listed, read, followed, and
// ends with its code.
func TestBackground(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "background", "default")
	ctx := operator(t.Context())
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo out; echo err >&2; sleep 0.3; echo later; exit 7"})
	expect.True(t, r.State == chat.RunRunning && r.Background && r.ID != "", "%+v", r)
	list, err := m.Runs(ctx, c.ID)
	expect.True(t, err == nil && len(list.Runs) == 1 && list.Runs[0].ID == r.ID, "%+v, %v", list, err)
	var out, errs strings.Builder
	res, err := m.FollowRun(ctx, c.ID, r.ID, "", func(f chat.Frame) {
		if f.Stream == chat.Stderr {
			errs.Write(f.Bytes())
			return
		}
		out.Write(f.Bytes())
	})
	expect.True(t, err == nil && res.Exit == 7 && out.String() == "out\nlater\n" && errs.String() == "err\n",
		"%+v, %v, %q, %q", res, err, &out, &errs)
	ended := awaitRun(t, m, c.ID, r.ID)
	if ended.State != chat.RunEnded || ended.Result.Exit != 7 || ended.Result.Stdout != "out\nlater\n" || ended.Result.StderrBytes != 4 || ended.Result.WallMS < 300 || ended.Result.MemoryPeak == 0 {
		t.Errorf("%+v %+v", ended, ended.Result)
	}
	got, err := m.ReadRun(ctx, c.ID, r.ID, "4-0")
	if err != nil || len(got.Frames) != 2 || got.Frames[0].Text != "later\n" || got.Cursor != "10-4" || got.State != chat.RunEnded {
		t.Errorf("%+v, %v", got, err)
	}
	n := supervisors(t)
	expect.True(t, len(n) == 0, "supervisors are left: %v", n)
}

// TestRunsOfOthers: the run of another chat is as one that is not there, for every act.
func TestRunsOfOthers(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := create(t, m, "a", "default"), create(t, m, "b", "default")
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "sleep 100", OpenStdin: true})
	ctx := operator(t.Context())
	acts := map[string]func(run string) error{
		"show":   func(run string) error { _, err := m.ShowRun(ctx, b.ID, run); return err },
		"read":   func(run string) error { _, err := m.ReadRun(ctx, b.ID, run, ""); return err },
		"follow": func(run string) error { _, err := m.FollowRun(ctx, b.ID, run, "", func(chat.Frame) {}); return err },
		"end":    func(run string) error { return m.EndRun(ctx, b.ID, run) },
		"signal": func(run string) error { return m.SignalRun(ctx, b.ID, run, chat.RunSignal{Signal: "TERM"}) },
		"stdin": func(run string) error {
			return m.WriteStdin(ctx, b.ID, run, io.NopCloser(strings.NewReader("x")), true)
		},
	}
	for name, act := range acts {
		other, none := act(r.ID), act("run-0000000000000000")
		if !errors.Is(other, chat.ErrNotFound) || !errors.Is(none, chat.ErrNotFound) {
			t.Errorf("%s: %v; %v", name, other, none)
			continue
		}
		if strings.ReplaceAll(other.Error(), r.ID, "X") != strings.ReplaceAll(none.Error(), "run-0000000000000000", "X") {
			t.Errorf("%s: %v is told apart from %v", name, other, none)
		}
	}
	if list, err := m.Runs(ctx, b.ID); err != nil || len(list.Runs) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	bridge := chat.WithCaller(t.Context(), chat.Caller{Name: "somebody", Role: chat.RoleBridge})
	expect.Is(t, expect.Err(m.ShowRun(bridge, a.ID, r.ID)), chat.ErrNotFound, "another bridge")
}

// TestBackgroundInput: standard input is written in pieces and closed; signals arrive; a run is
// ended.
func TestBackgroundInput(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "input", "default")
	ctx := operator(t.Context())
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "cat; echo closed", OpenStdin: true})
	for i, piece := range []string{"one ", "two "} {
		expect.NoError(t, m.WriteStdin(ctx, c.ID, r.ID, io.NopCloser(strings.NewReader(piece)), i == 1))
	}
	e := awaitRun(t, m, c.ID, r.ID)
	expect.True(t, e.Result.Stdout == "one two closed\n" && e.Result.Exit == 0, "%+v", e.Result)
	expect.Is(t, m.WriteStdin(ctx, c.ID, r.ID, io.NopCloser(strings.NewReader("x")), false), chat.ErrWrongPhase,
		"it has ended")
	r = startRun(t, m, c.ID, chat.RunSpec{Command: "trap 'echo usr1' USR1; trap 'echo int; exit 3' INT; echo ready; while :; do sleep 0.05; done"})
	awaitOutput(t, m, c.ID, r.ID, "ready")
	must.Do(t, m.SignalRun(ctx, c.ID, r.ID, chat.RunSignal{Signal: "USR1"}))
	awaitOutput(t, m, c.ID, r.ID, "usr1")
	must.Do(t, m.SignalRun(ctx, c.ID, r.ID, chat.RunSignal{Signal: "SIGINT"}))
	e = awaitRun(t, m, c.ID, r.ID)
	expect.True(t, e.Result.Exit == 3, "%+v", e.Result)
	r = startRun(t, m, c.ID, chat.RunSpec{Command: "(setsid sleep 1000 &); trap '' TERM; echo deaf; while :; do sleep 1; done", Grace: chat.Duration(200 * time.Millisecond)})
	awaitOutput(t, m, c.ID, r.ID, "deaf")
	must.Do(t, m.EndRun(ctx, c.ID, r.ID))
	e = awaitRun(t, m, c.ID, r.ID)
	expect.True(t, e.Result.Signal == "SIGKILL" && !e.Result.TimedOut, "%+v", e.Result)
	r = startRun(t, m, c.ID, chat.RunSpec{Command: "sleep 1000", Timeout: chat.Duration(300 * time.Millisecond)})
	e = awaitRun(t, m, c.ID, r.ID)
	expect.True(t, e.Result.Signal == "SIGTERM" && e.Result.TimedOut, "%+v", e.Result)
}

// deafRun is a background run that is deaf to SIGTERM by the time that its own is over.
func deafRun(t testing.TB, m *manager, id chat.ID) chat.Run {
	t.Helper()
	for timeout := time.Second; ; timeout *= 2 {
		spec := chat.RunSpec{Command: "trap '' TERM; echo deaf; sleep 1000", Timeout: chat.Duration(timeout), Grace: chat.Duration(100 * time.Millisecond)}
		r := startRun(t, m, id, spec)
		var got chat.Run
		until(t, "a run is deaf, or its time is over", func() bool {
			got = must.Get(m.ShowRun(operator(t.Context()), id, r.ID))(t)
			return got.Result.Stdout != "" || got.State != chat.RunRunning
		})
		if got.Result.Stdout != "" || timeout > longEnough {
			return r
		}
	}
}

// TestBackgroundRestart: a run goes on without chatd, loses nothing, ends by itself or by its
// timeout, and the next chatd knows how; what was printed before and meanwhile is there.
func TestBackgroundRestart(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "restart", "default")
	ctx := operator(t.Context())
	ends := startRun(t, m, c.ID, chat.RunSpec{Command: "echo before; sleep 1; yes 0123456 | head -c 3000000; echo meanwhile; exit 5"})
	over := deafRun(t, m, c.ID)
	long := startRun(t, m, c.ID, chat.RunSpec{Command: "while read line; do echo got $line; done; echo end", OpenStdin: true})
	done := startRun(t, m, c.ID, chat.RunSpec{Command: "echo done"})
	awaitRun(t, m, c.ID, done.ID)
	must.Do(t, m.WriteStdin(ctx, c.ID, long.ID, io.NopCloser(strings.NewReader("one\n")), false))
	awaitOutput(t, m, c.ID, long.ID, "got one")
	must.Do(t, m.Close())
	until(t, "two runs end while there is no chatd", func() bool { return len(supervisors(t)) <= 1 })
	m = open(t, opt)
	if e := awaitRun(t, m, c.ID, ends.ID); e.State != chat.RunEnded || e.Result.Exit != 5 || e.Result.StdoutBytes != 3000017 ||
		!strings.HasPrefix(e.Result.Stdout, "before\n0123456") || !strings.HasSuffix(e.Result.Stdout, "meanwhile\n") || e.Result.CPUMS == 0 {
		t.Errorf("%+v: exit %d, %d bytes, cpu %d", e.State, e.Result.Exit, e.Result.StdoutBytes, e.Result.CPUMS)
	}
	if e := awaitRun(t, m, c.ID, over.ID); e.State != chat.RunEnded || !e.Result.TimedOut || e.Result.Signal != "SIGKILL" {
		t.Errorf("%+v %+v", e.State, e.Result)
	}
	e := awaitRun(t, m, c.ID, done.ID)
	expect.True(t, e.State == chat.RunEnded && e.Result.Stdout == "done\n", "%+v %+v", e.State, e.Result)
	e, err := m.ShowRun(ctx, c.ID, long.ID)
	must.True(t, err == nil && e.State == chat.RunRunning, "%+v, %v", e, err)
	must.Do(t, m.WriteStdin(ctx, c.ID, long.ID, io.NopCloser(strings.NewReader("two\n")), true))
	if e := awaitRun(t, m, c.ID, long.ID); e.Result.Exit != 0 || e.Result.Stdout != "got one\ngot two\nend\n" {
		t.Errorf("%+v %+v", e.State, e.Result)
	}
	leaves := runLeaves(opt)
	expect.True(t, len(leaves) == 0, "leaves are left: %v", leaves)
}

// runLeaves are the cgroups of runs of this test's daemon.
func runLeaves(opt provision.Options) []string {
	return cgroups("/"+opt.Cgroup, "/runs/run-")
}

// TestBackgroundEnds: a run ends with the session, what had ended is kept then, and a reap leaves
// neither.
func TestBackgroundEnds(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	c := create(t, m, "ends", "default")
	ctx := operator(t.Context())
	done := startRun(t, m, c.ID, chat.RunSpec{Command: "echo done"})
	awaitRun(t, m, c.ID, done.ID)
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo on; sleep 1000"})
	awaitOutput(t, m, c.ID, r.ID, "on")
	must.Get(m.Sleep(ctx, c.ID))(t)
	if e := awaitRun(t, m, c.ID, r.ID); e.State != chat.RunEnded || e.Result.Signal != "SIGKILL" || e.Result.Stdout != "on\n" {
		t.Errorf("%+v %+v", e.State, e.Result)
	}
	e := awaitRun(t, m, c.ID, done.ID)
	expect.True(t, e.Result.Stdout == "done\n", "%+v", e)
	r = startRun(t, m, c.ID, chat.RunSpec{Command: "sleep 1000"}) // wakes it
	must.Do(t, m.Reap(ctx, c.ID))
	left, err := os.ReadDir(filepath.Join(opt.Run, "runs"))
	expect.True(t, err == nil && len(left) == 0, "left of the runs: %v, %v", left, err)
	n := supervisors(t)
	expect.True(t, len(n) == 0, "supervisors are left: %v", n)
	expect.Is(t, expect.Err(m.ShowRun(ctx, c.ID, r.ID)), chat.ErrNotFound, "")
}

// TestSimultaneousRuns: 64 runs are under way simultaneously, and the next one is refused.
func TestSimultaneousRuns(t *testing.T) {
	opt := attackOptions(t)
	edit(opt, "default", func(p *chat.Profile) {
		p.Limits.MemoryMax = 1 << 30 // with 64 runs, their supervisors took much of 256 MB at their start (ADR 0025)
	})
	m := open(t, opt)
	c := create(t, m, "many", "default")
	var last chat.Run
	for range chat.MaxRuns {
		last = startRun(t, m, c.ID, chat.RunSpec{Argv: []string{"sleep", "1000"}})
	}
	expect.Says(t, expect.Err(m.StartRun(operator(t.Context()), c.ID, chat.RunSpec{Command: "true"})),
		chat.ErrBusy, "64 runs", "the 65th")
	expect.Is(t, expect.Err(m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: "true"})), chat.ErrBusy,
		"the 65th, in the foreground")
	must.Do(t, m.EndRun(operator(t.Context()), c.ID, last.ID))
	startRun(t, m, c.ID, chat.RunSpec{Command: "true"})
}

// TestSupervisorIsOutOfReach: a supervisor has no privilege and none of the chat's limits, and the
// chat can neither see, signal nor trace it.
func TestSupervisorIsOutOfReach(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	c := create(t, m, "reach", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo on; sleep 1000"})
	awaitOutput(t, m, c.ID, r.ID, "on")
	all := supervisors(t)
	must.True(t, len(all) == 1, "supervisors: %v", all)
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", all[0])))(t)
	uid := strconv.Itoa(int(testUIDs.High))
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "Uid:\t" + strings.Join([]string{uid, uid, uid, uid}, "\t"), "Groups:\t \n"} {
		expect.True(t, strings.Contains(string(status), want), "want %q in %s", want, status)
	}
	groups := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", all[0])))(t)
	expect.True(t, !strings.Contains(string(groups), string(c.ID)),
		"it is bounded as the chat: %s", groups)
	res := run(t, m, c.ID, fmt.Sprintf("kill -0 %d; kill -9 %d; ls /proc/%d; cat %s/runs/*/*/end", all[0], all[0], all[0], opt.Run))
	expect.True(t, res.Exit != 0 && len(supervisors(t)) == 1, "%+v", res)
	// As the chat's uid on the host, outside of every namespace, which no process of a chat is.
	out, err := asUID(c.UID, fmt.Sprintf("kill -9 %d; cat /proc/%d/environ /proc/%d/fd/0; ls /proc/%d/fd", all[0], all[0], all[0], all[0]))
	expect.True(t, err != nil && len(supervisors(t)) == 1, "%s, %v", out, err)
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", all[0])))(t)
	t.Logf("a supervisor has %s", strings.Join(strings.Fields(string(text[strings.Index(string(text), "VmRSS"):])), " ")[:120])
}

func asUID(uid uint32, command string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
