package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// hog asks for 200 MiB, four times limits().
const hog = "exec dd if=/dev/zero of=/dev/null bs=200M count=1"

func TestMemoryBombEndsTheRun(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	must.Do(t, f.CreateRun(idA, "bomb"))
	run := start(t, f, idA, "runs/bomb", "sleep 1000 & sleep 1000 & "+hog)
	sig := endSignal(run.Wait())
	must.True(t, sig == syscall.SIGKILL, "the bomb ended by %v, want SIGKILL", sig)
	must.True(t, alive(session), "the bomb took the session with it")
	u := must.Get(f.RunUsage(idA, "bomb"))(t)
	expect.True(t, u.OOMKills != 0 && u.MemoryPeak >= 40<<20 && u.CPU != 0,
		"usage after the bomb: %+v", u)
	if f.mode == modeV2 { // memory.oom.group
		await(t, "the whole run to end", func() bool { u, err := f.RunUsage(idA, "bomb"); return err == nil && u.Pids == 0 })
	}
	must.Do(t, f.KillRun(killCtx(t), idA, "bomb"))
	must.Do(t, f.RemoveRun(idA, "bomb"))
	if u, err := f.Usage(idA); err != nil || u.OOMKills == 0 || u.MemoryPeak < 40<<20 {
		t.Errorf("usage of the chat after the run was removed: %+v, %v", u, err)
	}
	must.True(t, alive(session), "ending the run ended the session")
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
	must.Do(t, f.CreateRun(idA, "bomb"))
	must.Do(t, f.LimitCPU(idA, limits()))
	start(t, f, idA, "runs/bomb", "b() { b & b & wait; b; }; b")
	await(t, "a refused fork", func() bool {
		u := must.Get(f.Usage(idA))(t)
		if u.Pids > limits().PidsMax {
			t.Fatalf("%d tasks with a limit of %d", u.Pids, limits().PidsMax)
		}
		return u.PidsRefused > 0
	})
	must.True(t, alive(session), "the bomb took the session with it")
	must.Do(t, f.KillRun(killCtx(t), idA, "bomb"))
	pids, err := f.Members(idA)
	must.True(t, err == nil && len(pids) == 1, "after KillRun: %v, %v, want the session alone", pids, err)
	must.Do(t, f.RemoveRun(idA, "bomb"))
	if u, err := f.Usage(idA); err != nil || u.PidsRefused == 0 {
		t.Errorf("the refusals went away with the run: %v, %v", u.PidsRefused, err)
	}
}

func TestNoRoomForAnotherTask(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	start(t, f, idA, "session", "while :; do sleep 1000 & done")
	await(t, "a full chat", func() bool { u, err := f.Usage(idA); return err == nil && u.PidsRefused > 0 })
	full := start(t, f, idB2(t, f), "session", "sleep 1000")
	must.True(t, alive(full), "a full chat stops another one")
	for i := range 50 { // the limit counts dying shells too: try until it is really full
		must.Do(t, f.CreateRun(idA, fmt.Sprint("r", i)))
		err := f.Start(idA, fmt.Sprint("runs/r", i), exec.Command("/bin/sleep", "1000"))
		if errors.Is(err, chat.ErrBusy) {
			return
		}
		must.Do(t, err)
	}
	t.Fatal("50 more tasks found room in a full chat")
}

func idB2(t *testing.T, f *FS) chat.ID {
	must.Do(t, f.Create(idB, limits()))
	return idB
}

func TestKillReachesDoubleForksAndSessions(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	must.Do(t, f.CreateRun(idA, "r"))
	run := start(t, f, idA, "runs/r", "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP INT; (setsid sleep 1000 &) ; exec sleep 1000' &) ; done; exit 0")
	must.Do(t, run.Wait())
	await(t, "the strays", func() bool { pids, err := f.Members(idA); return err == nil && len(pids) == 6 })
	pids := must.Get(f.Members(idA))(t)
	must.Do(t, f.KillRun(killCtx(t), idA, "r"))
	for _, pid := range pids {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("%d lives on: %s", pid, b)
		}
	}
	must.Do(t, f.RemoveRun(idA, "r"))
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
	must.Do(t, f.Kill(killCtx(t), idA))
	must.True(t, !alive(session), "Kill returned with the session alive")
}

func TestLiveLimits(t *testing.T) {
	f := open(t)
	session := create(t, f, idA)
	try := func(run string) syscall.Signal {
		must.Do(t, f.CreateRun(idA, run))
		return endSignal(start(t, f, idA, "runs/"+run, "exec dd if=/dev/zero of=/dev/null bs=80M count=1").Wait())
	}
	l := limits()
	for i, c := range []struct {
		memory uint64
		want   syscall.Signal
	}{{48 << 20, syscall.SIGKILL}, {160 << 20, 0}, {32 << 20, syscall.SIGKILL}, {256 << 20, 0}} {
		l.MemoryMax, l.SwapMax = c.memory, uint64(i)<<20
		must.Do(t, f.Limit(idA, l))
		if got := try(fmt.Sprint("m", i)); got != c.want {
			t.Errorf("80 MiB with a limit of %d MiB: signal %v, want %v", c.memory>>20, got, c.want)
		}
	}
	l.PidsMax = 16
	must.Do(t, f.Limit(idA, l))
	must.Do(t, f.CreateRun(idA, "p"))
	if start(t, f, idA, "runs/p", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do sleep 1000 & done").Wait() == nil {
		t.Error("19 forks with a limit of 16 went well")
	}
	expect.True(t, alive(session), "a live change ended the session")
}

// TestFullMemoryDoesNotReachTheDaemon starts into a chat whose memory is full: the
// OOM killer must choose among the chat's processes.
func TestFullMemoryDoesNotReachTheDaemon(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	start(t, f, idA, "session", "while :; do "+strings.TrimPrefix(hog, "exec ")+" 2>/dev/null; done")
	for i := range 30 {
		run := fmt.Sprint("r", i)
		must.Do(t, f.CreateRun(idA, run))
		cmd := shell("true")
		if err := f.Start(idA, "runs/"+run, cmd); err == nil {
			cmd.Wait()
		} else {
			t.Logf("refused: %v", err)
		}
		must.Do(t, f.RemoveRun(idA, run))
	}
}
