package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// childEnv tells a test that it was started again in another cgroup.
const childEnv = "CHATD_TEST_CGROUP_CHILD"

// TestRestartElsewhere starts this test again from another cgroup. With the state
// file it must find the chat; without, it must not, or the test shows nothing.
func TestRestartElsewhere(t *testing.T) {
	if state, ok := os.LookupEnv(childEnv); ok {
		restarted(t, state)
		return
	}
	f := open(t)
	f.o.StateFile = filepath.Join(t.TempDir(), "cgroup.json")
	must.Do(t, f.bases.save(f.o.StateFile))
	session := create(t, f, idA)
	must.Do(t, f.Close())
	for _, c := range []struct{ state, want string }{{f.o.StateFile, "found 1"}, {"", "found 0"}} {
		out := elsewhere(t, f, c.state)
		expect.True(t, strings.Contains(out, c.want),
			"restart with state file %q: want %q in:\n%s", c.state, c.want, out)
	}
	must.True(t, alive(session), "a restart ended the session")
}

// TestSecondDaemon opens a base that another daemon holds: it would end the
// sessions that it does not know.
func TestSecondDaemon(t *testing.T) {
	f := open(t)
	expect.Is(t, expect.Err(OpenFS(f.o)), chat.ErrBusy, "a second daemon on one base")
	must.Do(t, f.Close())
	g, err := OpenFS(f.o)
	must.True(t, err == nil, "after the first has gone: %v", err)
	must.Do(t, g.Close())
}

// elsewhere runs the test in cgroups beside the base, all of which go again.
func elsewhere(t *testing.T, f *FS, state string) string {
	t.Helper()
	script := ""
	for _, base := range append(f.legacyBases(), f.bases.Unified) {
		dir := base + "-elsewhere"
		must.Do(t, cgroupfs.Make(dir))
		t.Cleanup(func() { expect.NoError(t, cgroupfs.RemoveTree(dir)) })
		script += "echo $$ > " + dir + "/cgroup.procs && "
	}
	cmd := exec.Command("/bin/sh", "-c", script+`exec "$0" -test.run='^TestRestartElsewhere$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+state, childEnv+"_NAME="+f.o.Name)
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil, "the restarted one: %v\n%s", err, out)
	return string(out)
}

func restarted(t *testing.T, state string) {
	f := must.Get(OpenFS(Options{Name: os.Getenv(childEnv + "_NAME"), StateFile: state}))(t)
	if state == "" {
		defer func() { must.Do(t, f.RemoveBase()) }()
	}
	ids := must.Get(f.IDs())(t)
	fmt.Println("found", len(ids))
	for _, id := range ids {
		pids := must.Get(f.Members(id))(t)
		expect.True(t, len(pids) == 1, "members of the session that was there: %v", pids)
		must.Do(t, f.CreateRun(id, "after"))
		cmd := shell("exit 7")
		must.Do(t, f.Start(id, "runs/after", cmd))
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("a run after the restart: %v", cmd.ProcessState)
		}
		must.Do(t, f.RemoveRun(id, "after"))
	}
}

func TestStateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cgroup.json")
	p, err := loadBases(file)
	must.True(t, err == nil && p.Unified == "", "no file: %+v, %v", p, err)
	want := bases{Mode: modeV1, Unified: "/x/chatd", Legacy: map[string]string{"memory": "/y/chatd"}}
	must.Do(t, want.save(file))
	if p, err = loadBases(file); err != nil || fmt.Sprint(p) != fmt.Sprint(want) {
		t.Fatalf("got %+v, %v", p, err)
	}
	st := must.Get(os.Stat(file))(t)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", st.Mode())
	}
	must.Do(t, os.WriteFile(file, []byte("{torn"), 0o600))
	if _, err := loadBases(file); err == nil || !strings.HasPrefix(err.Error(), "cannot ") {
		t.Fatalf("a torn file: %v, want an error: its sessions would be lost", err)
	}
}

// TestReuseOnlyCgroups: a state file cannot lead chatd into other directories.
func TestReuseOnlyCgroups(t *testing.T) {
	must.Root(t, "cgroups are made and removed")
	h := must.Get(readHost())(t)
	mode := must.Get(h.mode())(t)
	here := h.findBases("chatd-test-none", mode)
	tmp := filepath.Join(t.TempDir(), "chatd-test-none")
	must.Do(t, os.Mkdir(tmp, 0o700))
	for _, dir := range []string{"", "relative", tmp, "/", h.unified, filepath.Join(h.unified, "gone", "chatd-test-none")} {
		old := bases{Mode: mode, Unified: dir, Legacy: map[string]string{"memory": dir}}
		got := here.reuse(old, "chatd-test-none")
		expect.True(t, got.Unified == here.Unified && got.Legacy["memory"] == here.Legacy["memory"], "%q was taken: %+v", dir, got)
	}
}

func TestRemoveBaseWithChats(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	expect.Is(t, f.RemoveBase(), chat.ErrBusy, "RemoveBase")
	expect.True(t, alive(session), "RemoveBase ended the session")
}

// TestStepAside uses whatever controller the cgroup2 tree offers, be it one that
// chatd does not need, and a child in place of the daemon.
func TestStepAside(t *testing.T) {
	f := open(t)
	offered := must.Get(words(filepath.Join(f.bases.Unified, "..", "cgroup.controllers")))(t)
	own := filepath.Join(f.bases.Unified, "own")
	must.Do(t, cgroupfs.Make(own))
	here := must.Get(words(filepath.Join(own, "cgroup.controllers")))(t)
	if missing(here, []string{"memory"}) != nil { // memory, as threaded controllers know no such rule
		t.Skipf("no cgroup2 controllers: the host gives memory to cgroup v1 (offered above: %v)", offered)
	}
	start := exec.Command("/bin/sleep", "1000")
	d := must.Get(os.Open(own))(t)
	defer d.Close()
	start.SysProcAttr = shell("").SysProcAttr
	start.SysProcAttr.UseCgroupFD, start.SysProcAttr.CgroupFD = true, int(d.Fd())
	must.Do(t, start.Start())
	t.Cleanup(func() { start.Process.Kill(); start.Wait() })
	if err := enable(own, []string{"memory"}); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("enable with a process inside: %v, want EBUSY", err)
	}
	err := f.delegate(own, controllers)
	if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(start.Process.Pid)) {
		t.Fatalf("delegate with somebody else inside: %v, want ErrBusy and pid %d", err, start.Process.Pid)
	}
}

// TestStepsAsideItself starts this test again as the only process of a cgroup,
// as a service manager or a container does.
func TestStepsAsideItself(t *testing.T) {
	if own, ok := os.LookupEnv(childEnv); ok {
		f := must.Get(OpenFS(Options{Name: "chatd"}))(t)
		if f.bases.Unified != filepath.Join(own, "chatd") {
			t.Errorf("base %s, want it below %s", f.bases.Unified, own)
		}
		got := paths(t, os.Getpid())[""]
		expect.True(t, filepath.Base(got) == "chatd.daemon", "this process is in %s", got)
		must.Do(t, f.Close())
		again := must.Get(OpenFS(Options{Name: "chatd"}))(t)
		expect.Equal(t, again.bases.Unified, f.bases.Unified, "opened again at")
		other := must.Get(OpenFS(Options{Name: "chatd-doctor"}))(t)
		if want := filepath.Join(own, "chatd-doctor"); other.bases.Unified != want {
			t.Errorf("opened under another name at %s, want %s", other.bases.Unified, want)
		}
		must.Do(t, errors.Join(again.RemoveBase(), other.RemoveBase()))
		return
	}
	f := open(t)
	if f.mode != modeV2 {
		t.Skip("no cgroup2 controllers: the host gives them to cgroup v1")
	}
	own := filepath.Join(f.bases.Unified, "own")
	must.Do(t, cgroupfs.Make(own))
	cmd := exec.Command("/bin/sh", "-c", "echo $$ > "+own+`/cgroup.procs && exec "$0" -test.run='^TestStepsAsideItself$'`, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+own)
	out, err := cmd.CombinedOutput()
	expect.True(t, err == nil, "%v\n%s", err, out)
}

// TestBoundOwn: the front's cgroup is beside the base, is not a chat's, is there for one front after
// another, and goes with the base, but not while a front is in it.
func TestBoundOwn(t *testing.T) {
	f := open(t)
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		must.Do(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		must.Do(t, f.Bound(Front, cmd.Process.Pid))
		for _, set := range f.ownLimits(Front) {
			pids, err := cgroupfs.Processes(set.dir)
			expect.True(t, err == nil && slices.Equal(pids, []int{cmd.Process.Pid}),
				"in %s are %v, %v", set.dir, pids, err)
			for file, want := range set.files {
				got, err := os.ReadFile(filepath.Join(set.dir, file))
				expect.True(t, err == nil && strings.TrimSpace(string(got)) == want,
					"%s is %q, want %s: %v", file, got, want, err)
			}
		}
		ids, err := f.IDs()
		expect.True(t, err == nil && len(ids) == 0, "chats are %v, %v", ids, err)
		expect.Is(t, f.RemoveBase(), chat.ErrBusy, "with a front inside")
		must.Do(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	must.Do(t, f.removeOwn())
	for _, set := range f.ownLimits(Front) {
		expect.Is(t, expect.Err(os.Stat(set.dir)), os.ErrNotExist, "%s is left", set.dir)
	}
	alone := newUnitsFS(Options{Name: "chatd-test"}, "/sys/fs/cgroup/none")
	alone.crowded = chat.ErrUnsupported
	expect.Is(t, alone.Bound(Front, os.Getpid()), chat.ErrUnsupported,
		"where systemd has not given its cgroup away")
}

// TestFurtherController: under cgroup v1 a chat has a cgroup of a further controller only if it is
// made; then whoever is alive is in it, whoever is born later too, and Remove takes it away.
func TestFurtherController(t *testing.T) {
	f := open(t)
	if f.legacy == nil || f.bases.Legacy["blkio"] == "" {
		t.Log("only cgroup v1 with blkio has one")
		return
	}
	session := create(t, f, idA)
	dir := f.legacy.dir("blkio", idA, "")
	must.True(t, !f.legacy.has("blkio", idA), "a chat without a bound on block I/O has a cgroup for it")
	must.Do(t, f.joinFurther("blkio", idA))
	must.Do(t, f.CreateRun(idA, "later"))
	later := start(t, f, idA, "runs/later", "sleep 1000 & exec sleep 1000")
	await(t, "its child", func() bool {
		pids, err := cgroupfs.Members(f.dir(idA))
		return err == nil && len(pids) == 3
	})
	all, err := cgroupfs.Members(f.dir(idA))
	must.Do(t, err)
	var inside []int
	await(t, "nobody else inside", func() bool { // the thread that started it may still be ending
		inside, err = cgroupfs.Processes(dir)
		must.Do(t, err)
		return !slices.Contains(inside, os.Getpid())
	})
	slices.Sort(all)
	slices.Sort(inside)
	expect.True(t, slices.Equal(all, inside) && slices.Contains(inside, session.Process.Pid),
		"inside are %v of %v", inside, all)
	must.Do(t, f.TakeOut(t.Context(), later.Process.Pid))
	if inside, err = cgroupfs.Processes(dir); err != nil || slices.Contains(inside, later.Process.Pid) {
		t.Errorf("%d was taken out; inside are %v, %v", later.Process.Pid, inside, err)
	}
	must.Do(t, later.Process.Kill())
	must.Do(t, f.Kill(killCtx(t), idA))
	must.Do(t, f.Remove(idA))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", filepath.Base(dir), err)
	}
}
