package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStartBeforeProbes: before a wall was tried the Manager answers for what is there, and
// nothing new begins.
func TestStartBeforeProbes(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	awake, sleeps, reaped := create(t, m, "awake", "default"), create(t, m, "sleeps", "default"), asleep(t, m, "reaped")
	r := startRun(t, m, awake.ID, chat.RunSpec{Command: "echo on; exec sleep 1000"})
	awaitOutput(t, m, awake.ID, r.ID, "on")
	must.Do(t, m.Close())

	m = must.Get(startManager(t.Context(), opt))(t)
	defer func() { must.Do(t, m.Close()) }()
	ctx := operator(t.Context())
	page, err := m.List(ctx, chat.Filter{})
	expect.True(t, err == nil && len(page.Chats) == 3, "%d chats are listed: %v", len(page.Chats), err)
	got, err := m.Get(ctx, awake.ID)
	expect.True(t, err == nil && got.Awake && len(got.Layers) == len(chat.LayerNames()),
		"%+v, %v", got, err)
	for _, l := range got.Layers {
		expect.True(t, l.State == chat.LayerUnknown && l.Probe == "not tried yet",
			"before any probe layer %s is %+v", l.Name, l)
	}
	if got, err := m.ShowRun(ctx, awake.ID, r.ID); err != nil || got.State != chat.RunRunning {
		t.Errorf("the run is %+v, %v", got, err)
	}
	got, err = m.Sleep(ctx, sleeps.ID)
	expect.True(t, err == nil && !got.Awake, "sleep: %+v, %v", got, err)
	must.Do(t, m.Reap(ctx, reaped.ID))
	h, err := m.Host(ctx)
	expect.True(t, err == nil && len(h.Missing) == 0, "host: %+v, %v", h, err)
	for what, begin := range beginnings(m, awake.ID, sleeps.ID) {
		expect.Says(t, begin(t), chat.ErrBusy, "still trying its walls",
			"%s before the walls were tried", what)
	}
	must.Do(t, m.ProbeAndReconcile(t.Context()))
	for what, begin := range beginnings(m, awake.ID, sleeps.ID) {
		expect.Is(t, begin(t), nil, "%s after that", what)
	}
	page = must.Get(m.List(ctx, chat.Filter{}))(t)
	for _, c := range page.Chats {
		must.Do(t, m.Reap(ctx, c.ID))
	}
}

// beginnings is everything that begins something behind the walls.
func beginnings(m *manager, awake, sleeps chat.ID) map[string]func(*testing.T) error {
	return map[string]func(*testing.T) error{
		"create": func(t *testing.T) error {
			_, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "another"})
			return err
		},
		"wake": func(t *testing.T) error { _, err := m.Wake(operator(t.Context()), sleeps); return err },
		"run": func(t *testing.T) error {
			_, err := m.Run(operator(t.Context()), awake, chat.RunSpec{Command: "true"})
			return err
		},
		"background run": func(t *testing.T) error {
			_, err := m.StartRun(operator(t.Context()), awake, chat.RunSpec{Command: "true"})
			return err
		},
		"file tool": func(t *testing.T) error {
			content := "f"
			_, err := m.WriteFile(operator(t.Context()), awake, filewire.WriteFile{Path: "f", Content: &content}, nil)
			return err
		},
	}
}

// TestSocketBeforeProbes: while the probe of a session is held the socket answers and the wall
// for packets stands, systemd is not told that chatd is ready, and a create is told to come again.
func TestSocketBeforeProbes(t *testing.T) {
	a := activate(t)
	dir := filepath.Dir(a.config)
	barrier := filepath.Join(dir, "barrier")
	must.Do(t, os.MkdirAll(dir+"/bin", 0o755))
	must.Do(t, unix.Mkfifo(barrier, 0o600))
	real := must.Get(exec.LookPath("bwrap"))(t)
	// As the chat, which may not open the start barrier: chatd's own end of it is in no child.
	held := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n", barrier, real)
	must.Do(t, os.WriteFile(dir+"/bin/bwrap", []byte(held), 0o755))
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: a.socket + ".notify", Net: "unixgram"})
	must.Do(t, err)
	defer notify.Close()
	d := a.serve(t, "PATH="+dir+"/bin:$PATH NOTIFY_SOCKET="+a.socket+".notify", a.file)
	within, cancel := context.WithTimeout(t.Context(), longEnough) // "systemd" holds the socket
	defer cancel()
	st, err := d.Status(within)
	expect.True(t, err == nil && !st.Ready && len(st.Layers) == len(chat.LayerNames()),
		"%+v, %v", st, err)
	out, err := exec.Command("iptables", "-S", "OUTPUT").CombinedOutput()
	expect.True(t, err == nil && strings.Contains(string(out), "-j CHATD"), "OUTPUT is %s, %v", out, err)
	expect.Is(t, expect.Err(d.Create(t.Context(), chat.Spec{ExternalID: "early"})), chat.ErrBusy,
		"create")
	if said := pendingOf(t, notify); strings.Contains(said, "READY=1") {
		t.Errorf("systemd heard %q", said)
	}
	must.Do(t, os.Remove(barrier))
	heard(t, notify, "READY=1")
	err = expect.Err(d.Create(t.Context(), chat.Spec{ExternalID: "early"}))
	expect.True(t, err == nil, "create: %v\n%s", err, text(d.log))
	d.reapAll(t)
}

// pendingOf is what was said so far.
func pendingOf(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	must.Do(t, c.SetReadDeadline(time.Now()))
	var said strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if err != nil {
			return said.String()
		}
		said.Write(b[:n])
	}
}

// halfMade admits a chat at that time, and takes no step: the daemon does not run.
func halfMade(t *testing.T, opt provision.Options, at time.Time) state.Record {
	t.Helper()
	store := must.Get(state.Open(state.Options{Dir: opt.State, UIDs: opt.UIDs,
		BlockSize: min(1<<16, max(16, (opt.UIDs.High-opt.UIDs.Low+1)/16)),
		Now:       func() time.Time { return at }}))(t)
	by := chat.CallerFrom(operator(t.Context()))
	rec, _, err := store.Admit(chat.Spec{ExternalID: "half"},
		state.Event{Action: "create", Outcome: "intent", Caller: by})
	must.Do(t, errors.Join(err, store.Close()))
	return rec
}

// TestWakeOfAHalfMadeChat: a chat that a crash left half made is busy until reconcile has completed
// it, and wakes then. No caller is told that it never will.
func TestWakeOfAHalfMadeChat(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, m.Close())
	rec := halfMade(t, opt, time.Now())
	ctx := operator(t.Context())
	m = must.Get(startManager(t.Context(), opt))(t)
	defer func() { must.Do(t, m.Close()) }()
	_, wakeErr := m.Wake(ctx, rec.ID)
	_, sleepErr := m.Sleep(ctx, rec.ID)
	for what, err := range map[string]error{"wake": wakeErr, "sleep": sleepErr} {
		expect.True(t, errors.Is(err, chat.ErrBusy) && !errors.Is(err, chat.ErrWrongPhase),
			"%s of a half-made chat: %v", what, err)
	}
	must.Do(t, m.ProbeAndReconcile(t.Context()))
	c, err := m.Wake(ctx, rec.ID)
	expect.True(t, err == nil && c.Awake, "after reconcile: %+v, %v", c, err)
	must.Do(t, m.Reap(ctx, rec.ID))
}

// TestStartsAreLimited: the limiter bounds simultaneous starts. One that does not come to its
// prompt is counted no more after a while, so that it cannot keep others asleep.
func TestStartsAreLimited(t *testing.T) {
	opt := options(t)
	opt.Starts = 1
	m := open(t, opt)
	ctx := operator(t.Context())
	slow, other := asleep(t, m, "slow to start"), asleep(t, m, "waits for its place")
	must.Do(t, os.WriteFile(filepath.Join(slow.Home, ".bashrc"), []byte("touch ~/begun; until [ -e ~/go ]; do sleep 0.1; done\n"), 0o644))
	must.Do(t, os.Chown(filepath.Join(slow.Home, ".bashrc"), int(slow.UID), int(slow.UID)))
	woken := make(chan error, 1)
	began := time.Now()
	go func() { woken <- expect.Err(m.Wake(ctx, slow.ID)) }()
	waitFile(t, filepath.Join(slow.Home, "begun"))
	r, err := m.Run(ctx, other.ID, chat.RunSpec{Command: "true"})
	expect.True(t, err == nil && r.Exit == 0, "the chat beside it: %+v, %v", r, err)
	if waited := time.Since(began); waited < 3*time.Second {
		t.Errorf("the other chat was woken after %s, while the only place was taken", waited)
	}
	select {
	case err := <-woken:
		t.Errorf("the slow chat is awake before the other: %v", err)
	default:
	}
	must.Do(t, os.WriteFile(filepath.Join(slow.Home, "go"), nil, 0o644))
	must.Do(t, <-woken)
}

// TestSecondServe: a chatd in the network namespace of another one ends at once, names that one's
// process, and touches none of its packet rules.
func TestSecondServe(t *testing.T) {
	d := startDaemon(t, options(t), "")
	rules := func() string {
		return string(must.Get(exec.Command("iptables", "-S").CombinedOutput())(t))
	}
	before := rules()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	other := options(t)
	out, err := exec.CommandContext(ctx, programs.chatd, "serve", "--config", configFile(t, other)).
		CombinedOutput()
	if want := fmt.Sprintf("process %d has", d.cmd.Process.Pid); err == nil || ctx.Err() != nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("%v: %s, want %q", err, out, want)
	}
	expect.Equal(t, rules(), before, "the rules were\n%s\nand are\n", before)
	expect.True(t, expect.Err(os.Stat(other.Homes)) != nil, "it made homes")
}

// TestKilledRightAfterCreate: that a chat is ready is written a moment after its create is
// answered. A daemon that is killed before knows the chat's session all the same, and its sleep
// ends it.
func TestKilledRightAfterCreate(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	for _, external := range []string{"first", "second", "third"} {
		c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: external}))(t)
		d.kill()
		d = startDaemon(t, opt, "")
		got, err := d.Get(t.Context(), c.ID)
		expect.True(t, err == nil && got.Awake && got.Phase == chat.Ready,
			"after the kill: awake %t, %s, %v", got.Awake, got.Phase, err)
		if got, err = d.Sleep(t.Context(), c.ID); err != nil || got.Awake {
			t.Errorf("sleep: awake %t, %v", got.Awake, err)
		}
		left := pidsOf(c.UID)
		expect.True(t, len(left) == 0, "it sleeps, and has processes %v", left)
		must.Do(t, d.Reap(t.Context(), c.ID))
		gone(t, opt, c)
	}
}

// TestServeLeavesNothing: a chatd without systemd that is ended leaves its enforcer and its cgroups
// to a session that lives on, and nothing when there is none; when that session ends, the enforcer
// does.
func TestServeLeavesNothing(t *testing.T) {
	needsNamespaces(t, "the enforcer and the slice are units of systemd's")
	opt, config, _ := ruledConfig(t)
	none := func() bool { return len(enforcersOf(opt)) == 0 }
	d := startDaemonOf(t, opt, config, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "leaves", Profile: "ruled"}))(t)
	for _, pid := range enforcersOf(opt) {
		expect.Equal(t, string(must.Get(os.ReadFile("/proc/"+pid+"/comm"))(t)), "chatd-enforce\n",
			"top shows the enforcer as")
	}
	end := func() {
		must.Do(t, d.cmd.Process.Signal(syscall.SIGTERM))
		expect.Equal(t, d.ended(t), 0, "chatd ended with")
	}
	end()
	expect.True(t, !none() && len(baseCgroups(opt.Cgroup)) != 0,
		"with a session that lives on its enforcer or its cgroups are gone")
	must.Do(t, syscall.Kill(number(sessionInit(t, c)), syscall.SIGKILL)) // bubblewrap, pid 1 inside
	until(t, "the enforcer of a session that ended ends", none)
	d = startDaemonOf(t, opt, config, "")
	must.Do(t, d.Reap(t.Context(), c.ID))
	end()
	until(t, "the enforcer without a session ends", none)
	left := baseCgroups(opt.Cgroup)
	expect.True(t, len(left) == 0, "left are the cgroups %v", left)
}

// baseCgroups are the cgroups of a daemon of that name, except for that of the process itself.
func baseCgroups(name string) []string {
	return slices.DeleteFunc(cgroups("/"+name), func(dir string) bool { return filepath.Base(dir) != name })
}

// silentNameService lets nss-systemd(8) ask a service that takes each question and answers none,
// as one whose directory is on a host that is down. It returns what ends it.
func silentNameService(t *testing.T) (end func()) {
	t.Helper()
	needsNamespaces(t, "the host's own name services answer")
	const dir = "/run/systemd"
	must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	must.Do(t, os.Mkdir(filepath.Join(dir, "userdb"), 0o755))
	l := must.Get(net.Listen("unix", filepath.Join(dir, "userdb", "io.systemd.Silent")))(t)
	must.Do(t, os.Chmod(l.Addr().String(), 0o666))
	ended := false
	end = func() {
		if !ended {
			ended = true
			must.Do(t, errors.Join(l.Close(), unix.Unmount(dir, unix.MNT_DETACH)))
		}
	}
	t.Cleanup(end)
	return end
}

// TestSilentNameService: while a name service takes questions and does not answer, a create fails
// within a bound, says so and leaves nothing half done. All other verbs go on meanwhile: they ask
// no name service. When it answers again, the create is done.
func TestSilentNameService(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	awake, asleep := create(t, m, "awake", "default"), asleep(t, m, "asleep")
	answers := silentNameService(t)
	failed := going(func() error { return expect.Err(m.Create(ctx, chat.Spec{ExternalID: "silent"})) })
	if page, err := m.List(ctx, chat.Filter{Limit: 10}); err != nil || len(page.Chats) < 2 {
		t.Errorf("ls: %d chats, %v", len(page.Chats), err)
	}
	r := run(t, m, awake.ID, "echo on; id -un")
	expect.True(t, strings.HasPrefix(r.Stdout, "on\n"), "a run: %+v", r)
	must.Get(m.Sleep(ctx, awake.ID))(t)
	must.Get(m.Wake(ctx, awake.ID))(t)
	must.Get(m.Wake(ctx, asleep.ID))(t)
	must.Do(t, m.Reap(ctx, asleep.ID))
	select {
	case err := <-failed:
		t.Errorf("the create did not wait for the others: %v", err)
	default:
	}
	err := <-failed
	expect.Says(t, err, chat.ErrBusy, "name service", "the create")
	again, err := m.Get(ctx, awake.ID)
	expect.True(t, err == nil && again.Awake, "the chat awake: %+v, %v", again, err)
	answers()
	whole(t, opt, create(t, m, "silent", "default"))
	whole(t, opt, awake)
}

// TestStartWithoutNameService: chatd starts while a name service does not answer, walls and all,
// and shows and reaps what there is. Of what it cannot try it says so, and does not take to
// useradd(8) instead. Nothing new begins until it can.
func TestStartWithoutNameService(t *testing.T) {
	opt := options(t)
	before, err := openManager(t.Context(), opt)
	must.Do(t, err)
	was := create(t, before, "before", "default")
	must.Do(t, before.Close())
	answers := silentNameService(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	if got, err := m.Get(ctx, was.ID); err != nil || !got.Awake {
		t.Errorf("the chat awake: %+v, %v", got, err)
	}
	_, err = m.Run(ctx, was.ID, chat.RunSpec{Command: "true"})
	expect.Says(t, err, chat.ErrBusy, "name service", "a run")
	must.Do(t, m.Reap(ctx, was.ID))
	answers()
	host, err := m.Host(ctx) // tries the walls again
	must.Do(t, err)
	for _, l := range host.Layers {
		if l.Name == chat.LayerAccount && (l.State != chat.LayerOn || l.By != "userdb") {
			t.Errorf("the layer account is %+v", l)
		}
	}
	again := create(t, m, "before", "default")
	whole(t, opt, again)
	expect.True(t, again.UID != was.UID, "uid %d is given twice", was.UID)
}
