package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStartIntoThrottledChat: the daemon's own threads must not sleep out a
// chat's quota. That the new process is inside is the point; how long it takes is not.
func TestStartIntoThrottledChat(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	l := limits()
	l.CPUQuota = chat.Duration(10 * time.Millisecond)
	must.Do(t, f.LimitCPU(idA, l))
	for range 8 {
		start(t, f, idA, "session", "while :; do :; done")
	}
	await(t, "a throttled chat", func() bool { u, err := f.Usage(idA); must.Do(t, err); return u.Throttled > 0 })
	must.Do(t, f.CreateRun(idA, "r"))
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

func TestStartAgainAfterKill(t *testing.T) {
	f := open(t)
	create(t, f, idA)
	must.Do(t, f.CreateRun(idA, "old"))
	must.Do(t, f.KillRun(killCtx(t), idA, "old"))
	expect.Is(t, f.Start(idA, "runs/old", shell("true")), chat.ErrWrongPhase, "Start in a killed run")
	must.Do(t, f.CreateRun(idA, "old2"))
	for i := range 3 {
		must.Do(t, f.Kill(killCtx(t), idA))
		if i == 1 {
			must.Do(t, f.Create(idA, limits()))
		}
		run := fmt.Sprint("new", i)
		must.Do(t, f.CreateRun(idA, run))
		for _, leaf := range []string{"session", "runs/" + run} {
			cmd := shell("exit 7")
			must.Do(t, f.Start(idA, leaf, cmd))
			if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("round %d: a start in %s after Kill: %v", i, leaf, cmd.ProcessState)
			}
		}
	}
	expect.Is(t, f.Start(idA, "runs/old2", shell("true")), chat.ErrWrongPhase,
		"Start in a run that died with its chat")
	// A crash between the kill and its end leaves an empty leaf that nobody remembers.
	must.Do(t, f.Close())
	g := must.Get(OpenFS(f.o))(t)
	defer g.Close()
	must.Do(t, f.Create(idA, limits()))
	must.Do(t, cgroupfs.Write(f.dir(idA), "cgroup.kill", "1"))
	must.Do(t, g.Create(idA, limits()))
	cmd := shell("exit 7")
	must.Do(t, g.Start(idA, "session", cmd))
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("a start after a crash in Kill: %v", cmd.ProcessState)
	}
}

// TestCreateAgain asks for the number of the session's directory, which no
// kernel gives twice: an empty leaf is made anew, one with a session is not.
func TestCreateAgain(t *testing.T) {
	f := open(t)
	number := func() uint64 {
		var st unix.Stat_t
		must.Do(t, unix.Stat(f.dir(idA, sessionLeaf), &st))
		return st.Ino
	}
	must.Do(t, f.Create(idA, limits()))
	empty := number()
	must.Do(t, f.Create(idA, limits()))
	expect.True(t, number() != empty, "an empty leaf, in which something may have been killed, was kept")
	session := start(t, f, idA, "session", "exec sleep 1000")
	full := number()
	must.Do(t, f.Create(idA, limits()))
	expect.True(t, number() == full && alive(session), "the leaf of a live session was made anew")
}

func TestManySimultaneousStarts(t *testing.T) {
	f := open(t)
	before, goroutines := paths(t, os.Getpid()), runtime.NumGoroutine()
	var ids []chat.ID
	many := 200
	if testing.Short() {
		many = 60
	}
	for i := range many {
		ids = append(ids, chat.ID(fmt.Sprintf("%016x", i+1)))
	}
	// Once, so that what the runtime opens by itself is open.
	startMany(t, f, ids[:1])
	fds := countFDs(t)
	// A collection would close what was forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	startMany(t, f, ids)
	n := countFDs(t)
	expect.True(t, n <= fds, "%d descriptors before, %d after", fds, n)
	after := paths(t, os.Getpid())
	for c, p := range before {
		if after[c] != p {
			t.Errorf("chatd itself moved from %s to %s of %q", p, after[c], c)
		}
	}
	checkThreads(t, f)
	await(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	ids, err := f.IDs()
	expect.True(t, err == nil && len(ids) == 0, "left: %v, %v", ids, err)
}

func startMany(t *testing.T, f *FS, ids []chat.ID) {
	t.Helper()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { expect.NoError(t, startOne(t, f, id)) })
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
		for _, base := range append(f.legacyBases(), f.bases.Unified) {
			tasks := must.Get(os.ReadDir("/proc/self/task"))(t)
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
	fds := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(fds)
}

// TestDescriptorsStayHere looks at what a child got.
func TestDescriptorsStayHere(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	cmd := exec.Command("/bin/ls", "/proc/self/fd")
	var out strings.Builder
	cmd.Stdout = &out
	must.Do(t, f.Start(idA, "session", cmd))
	must.Do(t, cmd.Wait())
	plain := must.Get(exec.Command("/bin/ls", "/proc/self/fd").Output())(t)
	if out.String() != string(plain) { // what this process itself inherited may be there
		t.Errorf("the child has descriptors %q, a plain one %q", out.String(), plain)
	}
	expect.True(t, !cmd.SysProcAttr.UseCgroupFD, "the descriptor number stays in the command")
}

// TestShortLived starts what ends at once: a process that is ending can be moved
// nowhere, and that is not a failure.
func TestShortLived(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	rounds := 300
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		cmd := exec.Command("/bin/true")
		must.Do(t, f.Start(idA, "session", cmd))
		must.Do(t, cmd.Wait())
	}
}

// TestStormJoinsTheCPUCgroup: a first program that forks and ends at once, again
// and again, is inside all the same, or dead.
func TestStormJoinsTheCPUCgroup(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	cmd := shell("b() { (b) & (b) & }; b")
	err := f.Start(idA, "session", cmd)
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("the storm: %v", err)
	if f.legacy == nil {
		return
	}
	pids := must.Get(f.Members(idA))(t)
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		st, serr := sys.ReadStat(pid)
		if err != nil || serr != nil || st.Flags&sys.Exiting != 0 {
			continue
		}
		expect.True(t, strings.Contains(string(b), ":cpu:/"+filepath.Base(f.bases.Unified)+"/"+string(idA)),
			"pid %d: %s", pid, b)
	}
}

// TestQuotaStaysAfterStarts: a chat is throttled once it has a quota. Lifting it for a start must
// not lose it.
func TestQuotaStaysAfterStarts(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	start(t, f, idA, "session", "while :; do :; done")
	u, err := f.Usage(idA)
	must.True(t, err == nil && u.Throttled == 0, "before LimitCPU: %+v, %v", u, err)
	l := limits()
	l.CPUQuota, l.CPUPeriod = chat.Duration(5*time.Millisecond), chat.Duration(50*time.Millisecond)
	must.Do(t, f.LimitCPU(idA, l))
	for i := range 6 {
		must.Do(t, f.CreateRun(idA, fmt.Sprint("r", i)))
		start(t, f, idA, fmt.Sprint("runs/r", i), "while :; do :; done")
		before := must.Get(f.Usage(idA))(t)
		await(t, "throttling after a start", func() bool { u, err := f.Usage(idA); must.Do(t, err); return u.Throttled > before.Throttled })
	}
	if f.mode == modeV2 {
		expect.Equal(t, string(must.Get(cgroupfs.Read(f.dir(idA), "cpu.max"))(t)), "5000 50000\n",
			"cpu.max")
	}
}

// TestJoinFindsChildren: a process that forks after it was listed, and ends before it is moved,
// leaves no child outside: a chat could otherwise fork its way out of the CPU quota of cgroup v1.
func TestJoinFindsChildren(t *testing.T) {
	f := open(t)
	if f.legacy == nil {
		t.Skip("cgroup v2 bounds each child from its birth")
	}
	create(t, f, idA)
	fork, said := exec.Command("sh", "-c", `read x; sleep 1000 >/dev/null & echo $!`), bytes.Buffer{}
	in := must.Get(fork.StdinPipe())(t)
	fork.Stdout = &said
	must.Do(t, fork.Start())
	child := 0
	lists := func() ([]int, error) {
		if child != 0 {
			return []int{fork.Process.Pid, child}, nil
		}
		must.Do(t, in.Close()) // it is listed; now it forks and ends
		await(t, "the child", func() bool {
			st, err := sys.ReadStat(fork.Process.Pid)
			return err == nil && st.State == 'Z'
		})
		must.Do(t, fork.Wait())
		child = must.Get(strconv.Atoi(strings.TrimSpace(said.String())))(t)
		return []int{fork.Process.Pid}, nil
	}
	must.Do(t, f.legacy.join("cpu", idA, lists))
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	inside := must.Get(cgroupfs.Processes(f.legacy.dir("cpu", idA, "")))(t)
	expect.True(t, slices.Contains(inside, child), "the child %d is not among %v", child, inside)
	must.Do(t, syscall.Kill(child, syscall.SIGKILL))
	await(t, "the child's end", func() bool { return syscall.Kill(child, 0) != nil })
}

// TestChatLocks: a chat that is held up holds up no other, however many there are.
func TestChatLocks(t *testing.T) {
	var f FS
	var held []*chatLock
	for i := range 500 {
		held = append(held, f.lock(chat.ID(fmt.Sprintf("%016x", i))))
	}
	for _, l := range held {
		l.Unlock()
	}
	expect.True(t, len(f.locks.all) == 0, "%d locks are kept", len(f.locks.all))
}

// TestLendCPU: a run that dies slowly gets its chat one CPU for a moment, never more, and not again
// soon; the quota comes back, but not over limits that were set meanwhile.
func TestLendCPU(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	must.Do(t, f.LimitCPU(idA, limits()))
	quota := func() string {
		b := must.Get(cgroupfs.Read(f.file(idA, "", "cpu.max")))(t)
		return strings.TrimSpace(string(b))
	}
	own, whole, err := f.quotas(idA)
	must.Do(t, err)
	must.True(t, own != "" && own != whole && quota() == own,
		"the quota is %q, one CPU is %q", own, whole)
	must.Do(t, f.lendCPU(idA))
	expect.Equal(t, quota(), whole, "lent")
	for quota() != own { // lendTime later
		time.Sleep(10 * time.Millisecond)
	}
	must.Do(t, f.lendCPU(idA))
	expect.Equal(t, quota(), own, "lent again at once")
	f.endLoan(idA, "1000 1000", "something else")
	expect.Equal(t, quota(), own, "a loan that is over changed limits")
}
