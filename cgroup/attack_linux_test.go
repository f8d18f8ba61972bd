package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// hog asks for 200 MiB, four times limits().
const hog = "exec dd if=/dev/zero of=/dev/null bs=200M count=1"

func TestMemoryBombEndsTheRun(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	must(t, f.CreateRun(idA, "bomb"))
	run := start(t, f, idA, "runs/bomb", "sleep 1000 & sleep 1000 & "+hog)
	sig := endSignal(run.Wait())
	if sig != syscall.SIGKILL {
		t.Fatalf("the bomb ended by %v, want SIGKILL", sig)
	}
	if !alive(session) {
		t.Fatal("the bomb took the session with it")
	}
	u, err := f.RunUsage(idA, "bomb")
	must(t, err)
	if u.OOMKills == 0 || u.MemoryPeak < 40<<20 || u.CPU == 0 {
		t.Errorf("usage after the bomb: %+v", u)
	}
	if f.mode == modeV2 { // memory.oom.group
		await(t, "the whole run to end", func() bool { u, err := f.RunUsage(idA, "bomb"); return err == nil && u.Pids == 0 })
	}
	must(t, f.KillRun(killCtx(t), idA, "bomb"))
	must(t, f.RemoveRun(idA, "bomb"))
	if u, err := f.Usage(idA); err != nil || u.OOMKills == 0 || u.MemoryPeak < 40<<20 {
		t.Errorf("usage of the chat after the run was removed: %+v, %v", u, err)
	}
	if !alive(session) {
		t.Fatal("ending the run ended the session")
	}
}

func endSignal(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

func TestForkBombIsBounded(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	must(t, f.CreateRun(idA, "bomb"))
	must(t, f.LimitCPU(idA, limits()))
	start(t, f, idA, "runs/bomb", "b() { b & b & wait; b; }; b")
	await(t, "a refused fork", func() bool {
		u, err := f.Usage(idA)
		must(t, err)
		if u.Pids > limits().PidsMax {
			t.Fatalf("%d tasks with a limit of %d", u.Pids, limits().PidsMax)
		}
		return u.PidsRefused > 0
	})
	if !alive(session) {
		t.Fatal("the bomb took the session with it")
	}
	must(t, f.KillRun(killCtx(t), idA, "bomb"))
	if pids, err := f.Members(idA); err != nil || len(pids) != 1 {
		t.Fatalf("after KillRun: %v, %v, want the session alone", pids, err)
	}
}

func TestNoRoomForAnotherTask(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	start(t, f, idA, "session", "while :; do sleep 1000 & done")
	await(t, "a full chat", func() bool { u, err := f.Usage(idA); return err == nil && u.PidsRefused > 0 })
	full := start(t, f, idB2(t, f), "session", "sleep 1000")
	if !alive(full) {
		t.Fatal("a full chat stops another one")
	}
	for i := range 50 { // the limit counts dying shells too: try until it is really full
		must(t, f.CreateRun(idA, fmt.Sprint("r", i)))
		err := f.Start(idA, fmt.Sprint("runs/r", i), exec.Command("/bin/sleep", "1000"))
		if errors.Is(err, chat.ErrBusy) {
			return
		}
		must(t, err)
	}
	t.Fatal("50 more tasks found room in a full chat")
}

func idB2(t *testing.T, f *FS) chat.ID {
	must(t, f.Create(idB, limits()))
	return idB
}

func TestKillReachesDoubleForksAndSessions(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	must(t, f.CreateRun(idA, "r"))
	run := start(t, f, idA, "runs/r", "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP INT; (setsid sleep 1000 &) ; exec sleep 1000' &) ; done; exit 0")
	must(t, run.Wait())
	await(t, "the strays", func() bool { pids, err := f.Members(idA); return err == nil && len(pids) == 6 })
	pids, err := f.Members(idA)
	must(t, err)
	must(t, f.KillRun(killCtx(t), idA, "r"))
	for _, pid := range pids {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("%d lives on: %s", pid, b)
		}
	}
	must(t, f.RemoveRun(idA, "r"))
}

func TestKillGivesUpWithItsContext(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	// A stopped context may still find the tree empty; it must never hang or lie.
	if err := f.Kill(ctx, idA); err != nil && !(errors.Is(err, chat.ErrBusy) && errors.Is(err, context.Canceled)) {
		t.Fatal(err)
	}
	must(t, f.Kill(killCtx(t), idA))
	if alive(session) {
		t.Fatal("Kill returned with the session alive")
	}
}

func TestCPUIsThrottled(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	must(t, f.CreateRun(idA, "spin"))
	start(t, f, idA, "session", "while :; do :; done")
	start(t, f, idA, "runs/spin", "while :; do :; done")
	if u, err := f.Usage(idA); err != nil || u.Throttled != 0 {
		t.Fatalf("before LimitCPU: %+v, %v", u, err)
	}
	l := limits()
	l.CPUQuota, l.CPUPeriod = chat.Duration(5*time.Millisecond), chat.Duration(50*time.Millisecond)
	must(t, f.LimitCPU(idA, l))
	await(t, "three throttled periods", func() bool { u, err := f.Usage(idA); must(t, err); return u.Throttled >= 3 })
}

// TestStartIntoThrottledChat: the daemon's own threads must not sleep out a
// chat's quota. That the new process is inside is the point; how long it takes is not.
func TestStartIntoThrottledChat(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	l := limits()
	l.CPUQuota = chat.Duration(10 * time.Millisecond)
	must(t, f.LimitCPU(idA, l))
	for range 8 {
		start(t, f, idA, "session", "while :; do :; done")
	}
	await(t, "a throttled chat", func() bool { u, err := f.Usage(idA); must(t, err); return u.Throttled > 0 })
	must(t, f.CreateRun(idA, "r"))
	begin, collected := time.Now(), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for range 20 {
			at := time.Now()
			runtime.GC()
			longest = max(longest, time.Since(at))
		}
		collected <- longest
	}()
	run := start(t, f, idA, "runs/r", "exec sleep 1000")
	t.Logf("Start took %v; the longest collection meanwhile %v", time.Since(begin), <-collected)
	checkInside(t, f, idA, run.Process.Pid)
}

// checkInside asks the kernel, for every hierarchy in use.
func checkInside(t testing.TB, f *FS, id chat.ID, pid int) {
	t.Helper()
	own := paths(t, pid)
	want := []string{""}
	if f.legacy != nil {
		want = append(want, controllers...)
	}
	for _, c := range want {
		if !strings.Contains(own[c], "/"+string(id)) {
			t.Errorf("pid %d is in %q of %q, want below %s", pid, own[c], c, id)
		}
	}
}

func TestLiveLimits(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	try := func(run string) syscall.Signal {
		must(t, f.CreateRun(idA, run))
		return endSignal(start(t, f, idA, "runs/"+run, "exec dd if=/dev/zero of=/dev/null bs=80M count=1").Wait())
	}
	l := limits()
	for i, c := range []struct {
		memory uint64
		want   syscall.Signal
	}{{48 << 20, syscall.SIGKILL}, {160 << 20, 0}, {32 << 20, syscall.SIGKILL}, {256 << 20, 0}} {
		l.MemoryMax, l.SwapMax = c.memory, uint64(i)<<20
		must(t, f.Limit(idA, l))
		if got := try(fmt.Sprint("m", i)); got != c.want {
			t.Errorf("80 MiB with a limit of %d MiB: signal %v, want %v", c.memory>>20, got, c.want)
		}
	}
	l.PidsMax = 16
	must(t, f.Limit(idA, l))
	must(t, f.CreateRun(idA, "p"))
	if start(t, f, idA, "runs/p", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do sleep 1000 & done").Wait() == nil {
		t.Error("19 forks with a limit of 16 went well")
	}
	if !alive(session) {
		t.Error("a live change ended the session")
	}
}

// TestCloneAfterKill documents row 4 of checked.md, the reason for fresh leaves:
// where it fails, the kernel was mended, and nothing is worse.
func TestCloneAfterKill(t *testing.T) {
	f := open(t)
	dir := filepath.Join(f.places.Unified, "plain")
	try := func() error {
		d, err := os.Open(dir)
		must(t, err)
		defer d.Close()
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
		return cmd.Run()
	}
	must(t, mkdir(dir))
	must(t, try())
	must(t, write(dir, "cgroup.kill", "1"))
	t.Logf("after cgroup.kill a clone into the same directory: %v", try())
	child := filepath.Join(dir, "child")
	must(t, mkdir(child))
	must(t, rmTree(dir))
	must(t, mkdir(dir))
	if err := try(); err != nil {
		t.Errorf("a directory made anew: %v", err)
	}
}

func TestStartAgainAfterKill(t *testing.T) {
	f := open(t)
	create(t, f, idA)
	must(t, f.CreateRun(idA, "old"))
	must(t, f.KillRun(killCtx(t), idA, "old"))
	if err := f.Start(idA, "runs/old", shell("true")); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("Start in a killed run: %v, want ErrWrongPhase", err)
	}
	must(t, f.CreateRun(idA, "old2"))
	for i := range 3 {
		must(t, f.Kill(killCtx(t), idA))
		if i == 1 {
			must(t, f.Create(idA, limits()))
		}
		run := fmt.Sprint("new", i)
		must(t, f.CreateRun(idA, run))
		for _, leaf := range []string{"session", "runs/" + run} {
			cmd := shell("exit 7")
			must(t, f.Start(idA, leaf, cmd))
			if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("round %d: a start in %s after Kill: %v", i, leaf, cmd.ProcessState)
			}
		}
	}
	if err := f.Start(idA, "runs/old2", shell("true")); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("Start in a run that died with its chat: %v, want ErrWrongPhase", err)
	}
	// A crash between the kill and its end leaves an empty leaf that nobody remembers.
	must(t, f.Close())
	g, err := OpenFS(f.o)
	must(t, err)
	defer g.Close()
	must(t, f.Create(idA, limits()))
	must(t, write(f.dir(idA), "cgroup.kill", "1"))
	must(t, g.Create(idA, limits()))
	cmd := shell("exit 7")
	must(t, g.Start(idA, "session", cmd))
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("a start after a crash in Kill: %v", cmd.ProcessState)
	}
}

// TestFullMemoryDoesNotReachTheDaemon starts into a chat whose memory is full: the
// OOM killer must choose among the chat's processes.
func TestFullMemoryDoesNotReachTheDaemon(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	start(t, f, idA, "session", "while :; do "+strings.TrimPrefix(hog, "exec ")+" 2>/dev/null; done")
	for i := range 30 {
		run := fmt.Sprint("r", i)
		must(t, f.CreateRun(idA, run))
		cmd := shell("true")
		if err := f.Start(idA, "runs/"+run, cmd); err == nil {
			cmd.Wait()
		} else {
			t.Logf("refused: %v", err)
		}
		must(t, f.RemoveRun(idA, run))
	}
}

func TestManyStartsAtOnce(t *testing.T) {
	f := open(t)
	before, goroutines := paths(t, os.Getpid()), runtime.NumGoroutine()
	var ids []chat.ID
	for i := range 200 {
		ids = append(ids, chat.ID(fmt.Sprintf("%016x", i+1)))
	}
	// Once, so that what the runtime opens by itself is open.
	startMany(t, f, ids[:1])
	fds := countFDs(t)
	startMany(t, f, ids)
	runtime.GC()
	if n := countFDs(t); n > fds {
		t.Errorf("%d descriptors before, %d after", fds, n)
	}
	after := paths(t, os.Getpid())
	for c, p := range before {
		if after[c] != p {
			t.Errorf("chatd itself moved from %s to %s of %q", p, after[c], c)
		}
	}
	checkThreads(t, f)
	await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	if ids, err := f.IDs(); err != nil || len(ids) != 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
}

func startMany(t *testing.T, f *FS, ids []chat.ID) {
	t.Helper()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			if err := startOne(t, f, id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func startOne(t *testing.T, f *FS, id chat.ID) error {
	if err := f.Create(id, limits()); err != nil {
		return err
	}
	cmd := shell("exec sleep 1000")
	if err := f.Start(id, "session", cmd); err != nil {
		return err
	}
	checkInside(t, f, id, cmd.Process.Pid)
	ctx, stop := context.WithTimeout(context.Background(), generous)
	defer stop()
	err := f.Kill(ctx, id)
	cmd.Wait()
	return errors.Join(err, f.Remove(id))
}

// checkThreads: no thread that lives on is in a chat's cgroup.
func checkThreads(t *testing.T, f *FS) {
	t.Helper()
	await(t, "the lent threads to die", func() bool {
		for _, base := range append(f.legacyBases(), f.places.Unified) {
			tasks, err := os.ReadDir("/proc/self/task")
			must(t, err)
			for _, task := range tasks {
				b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/cgroup")
				if err == nil && strings.Contains(string(b), "/"+filepath.Base(base)+"/") {
					return false
				}
			}
		}
		return true
	})
}

func countFDs(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(fds)
}

// TestDescriptorsStayHere looks at what a child got.
func TestDescriptorsStayHere(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	cmd := exec.Command("/bin/ls", "/proc/self/fd")
	var out strings.Builder
	cmd.Stdout = &out
	must(t, f.Start(idA, "session", cmd))
	must(t, cmd.Wait())
	plain, err := exec.Command("/bin/ls", "/proc/self/fd").Output()
	must(t, err)
	if out.String() != string(plain) { // what this process itself inherited may be there
		t.Errorf("the child has descriptors %q, a plain one %q", out.String(), plain)
	}
	if cmd.SysProcAttr.UseCgroupFD {
		t.Error("the descriptor number stays in the command")
	}
}

// TestShortLived starts what ends at once: a process that is ending can be moved
// nowhere, and that is no failure.
func TestShortLived(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	for range 300 {
		cmd := exec.Command("/bin/true")
		must(t, f.Start(idA, "session", cmd))
		must(t, cmd.Wait())
	}
}

// TestStormJoinsTheCPUCgroup: a first program that forks and ends at once, again
// and again, is inside all the same, or dead.
func TestStormJoinsTheCPUCgroup(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	cmd := shell("b() { (b) & (b) & }; b")
	err := f.Start(idA, "session", cmd)
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("the storm: %v", err)
	if f.legacy == nil {
		return
	}
	pids, err := f.Members(idA)
	must(t, err)
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && !strings.Contains(string(b), ":cpu:/"+filepath.Base(f.places.Unified)+"/"+string(idA)) && !exiting(pid) {
			t.Errorf("pid %d: %s", pid, b)
		}
	}
}

// TestQuotaStaysAfterStarts: lifting it for a start must not lose it.
func TestQuotaStaysAfterStarts(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	l := limits()
	l.CPUQuota, l.CPUPeriod = chat.Duration(5*time.Millisecond), chat.Duration(50*time.Millisecond)
	must(t, f.LimitCPU(idA, l))
	start(t, f, idA, "session", "while :; do :; done")
	for i := range 6 {
		must(t, f.CreateRun(idA, fmt.Sprint("r", i)))
		start(t, f, idA, fmt.Sprint("runs/r", i), "while :; do :; done")
		before, err := f.Usage(idA)
		must(t, err)
		await(t, "throttling after a start", func() bool { u, err := f.Usage(idA); must(t, err); return u.Throttled > before.Throttled })
	}
	if f.mode == modeV2 {
		if b, err := readFile(f.dir(idA), "cpu.max"); err != nil || string(b) != "5000 50000\n" {
			t.Errorf("cpu.max is %q, %v", b, err)
		}
	}
}
