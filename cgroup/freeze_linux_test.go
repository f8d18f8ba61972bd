package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// counter is a script that appends a byte to a file for ever, without a child, and the file.
func counter(t *testing.T, name string) (script, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(file, nil, 0o666))
	return fmt.Sprintf("while :; do echo >> %s; done", file), file
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	fi := must.Get(os.Stat(file))(t)
	return fi.Size()
}

// counts reports whether a counter goes on: it waits until it does, or for a second.
func counts(t *testing.T, file string) bool {
	t.Helper()
	before := size(t, file)
	for range 100 {
		time.Sleep(10 * time.Millisecond)
		if size(t, file) > before {
			return true
		}
	}
	return false
}

// counting starts a session and a run that count; both checks whether they do, and lines is how far
// they are.
func counting(t *testing.T, f *FS) (both func(what string, wantSession, wantRun bool), lines func() int64) {
	t.Helper()
	inSession, session := counter(t, "session")
	inRun, run := counter(t, "run")
	start(t, f, idA, "session", inSession)
	must.Do(t, f.CreateRun(idA, "counts"))
	start(t, f, idA, "runs/counts", inRun)
	return func(what string, wantSession, wantRun bool) {
		t.Helper()
		if s, r := counts(t, session), counts(t, run); s != wantSession || r != wantRun {
			t.Errorf("%s: the session counts %t, the run %t", what, s, r)
		}
	}, func() int64 { return size(t, session) + size(t, run) }
}

func frozenIs(t *testing.T, f *FS, want chat.Frozen) {
	t.Helper()
	is, err := f.Frozen(idA)
	expect.True(t, is == want && err == nil, "frozen is %q, %v, want %q", is, err, want)
}

// standsStill waits until nothing in the leaf runs.
func standsStill(t *testing.T, f *FS, leaf ...string) {
	t.Helper()
	await(t, "it stands still", func() bool {
		v := must.Get(cgroupfs.ReadFlat(f.dir(idA, leaf...), "cgroup.events", "frozen"))(t)
		return v == 1
	})
}

// TestFreeze: a frozen session runs no code, and goes on where it was; a run beside it is not
// touched. A held chat stands still as a whole, starts nothing, and dies of a kill without running.
func TestFreeze(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	frozenIs(t, f, "")
	both, lines := counting(t, f)
	both("at first", true, true)
	must.Do(t, f.Freeze(idA))
	standsStill(t, f, sessionLeaf)
	frozenIs(t, f, chat.FrozenUntilUsed)
	both("frozen", false, true)
	must.Do(t, f.CreateRun(idA, "enters"))
	start(t, f, idA, "runs/enters", "exit 0") // what meets a frozen session does not stop chatd
	must.Do(t, f.FreezeAll(t.Context(), idA))
	frozenIs(t, f, chat.FrozenUntilThawed)
	both("held", false, false)
	must.Do(t, f.CreateRun(idA, "late"))
	if err := f.Start(idA, "runs/late", shell("exit 0")); !errors.Is(err, chat.ErrBusy) ||
		!strings.Contains(err.Error(), "frozen") {
		t.Errorf("a start in a held chat: %v", err)
	}
	must.Do(t, f.ThawAll(t.Context(), idA))
	frozenIs(t, f, chat.FrozenUntilUsed)
	both("released", false, true)
	must.Do(t, f.Thaw(idA))
	must.Do(t, f.Thaw(idA))
	frozenIs(t, f, "")
	both("thawed", true, true)
	start(t, f, idA, "runs/late", "exit 0")
	must.Do(t, f.FreezeAll(t.Context(), idA))
	was := lines()
	must.Do(t, f.KillRun(killCtx(t), idA, "counts"))
	must.Do(t, f.Kill(killCtx(t), idA))
	now := lines()
	expect.True(t, now == was, "what was killed ran before: %d lines more", now-was)
	must.Do(t, f.Remove(idA))
	frozenIs(t, f, "")
	expect.Is(t, f.Freeze(idA), chat.ErrNotFound, "a chat without cgroups")
	if len(f.gates) > 0 {
		t.Errorf("%d gates are kept", len(f.gates))
	}
}

// TestHoldWaitsForStarts: a chat is not frozen between the look whether it is and the birth of a
// command in it. A child that is born frozen would hold up every fork of this test, and so of
// chatd.
func TestHoldWaitsForStarts(t *testing.T) {
	f := open(t)
	create(t, f, idA)
	must.Do(t, f.CreateRun(idA, "starts"))
	held := make(chan error, 1)
	meanwhile := func(int) error {
		go func() { held <- f.FreezeAll(t.Context(), idA) }()
		await(t, "it is about to be held", func() bool {
			g := f.gate(idA)
			if free := g.TryRLock(); free {
				g.RUnlock()
				return false
			}
			return true
		})
		for range 50 { // long enough for one that does not wait
			if is, err := f.Frozen(idA); is != "" || err != nil {
				return fmt.Errorf("it is frozen %s, %v", is, err)
			}
			time.Sleep(time.Millisecond)
		}
		if _, err := f.enterGate(idA); !errors.Is(err, chat.ErrBusy) {
			return fmt.Errorf("another start beside one that is to be held: %v", err)
		}
		return nil
	}
	cmd := shell("exec sleep 1000")
	must.Do(t, f.StartPrepared(idA, "runs/starts", cmd, meanwhile))
	must.Do(t, <-held)
	frozenIs(t, f, chat.FrozenUntilThawed)
	must.Do(t, f.Kill(killCtx(t), idA))
	cmd.Wait()
}

// TestHoldMeetsStarts: a chat is held again and again while commands start in it. Each of them is
// started or refused.
func TestHoldMeetsStarts(t *testing.T) {
	f := open(t)
	create(t, f, idA)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			expect.NoError(t, errors.Join(f.FreezeAll(t.Context(), idA), f.ThawAll(t.Context(), idA)))
			time.Sleep(3 * time.Millisecond)
		}
	})
	started, refused := 0, 0
	rounds := 200
	if testing.Short() {
		rounds = 60
	}
	for i := 0; i < rounds || started == 0 || refused == 0; i++ {
		run := fmt.Sprint("r", i)
		must.Do(t, f.CreateRun(idA, run))
		cmd := shell("exit 0")
		switch err := f.Start(idA, "runs/"+run, cmd); {
		case err == nil:
			started++
			must.Do(t, f.KillRun(killCtx(t), idA, run))
			cmd.Wait()
		case errors.Is(err, chat.ErrBusy):
			refused++
		default:
			t.Fatal(err)
		}
		must.Do(t, f.RemoveRun(idA, run))
	}
	stop()
	all.Wait()
	t.Logf("%d started, %d refused", started, refused)
}

// TestFreezeStubborn: nothing that a chat does keeps it from standing still: not signals that it
// ignores or sends, not forks, not a parent that waits in vfork(2), not a debugger.
func TestFreezeStubborn(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	script, file := counter(t, "session")
	start(t, f, idA, "session", "trap '' TERM HUP INT QUIT CONT TSTP; "+
		"(while :; do kill -CONT 0; done) & (while :; do (:) ; done) & "+
		"(while :; do /bin/true; done) & "+
		script)
	must.True(t, counts(t, file), "it does not count")
	must.Do(t, f.FreezeAll(t.Context(), idA))
	expect.True(t, !counts(t, file), "it counts while it is held")
	must.Do(t, f.ThawAll(t.Context(), idA))
	expect.True(t, counts(t, file), "it does not go on")
}

// TestMemoryOfAFrozenChat: a limit that is lowered below what a frozen chat has ends a process of
// it, and does not wait for a thaw.
func TestMemoryOfAFrozenChat(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	// A variable of 24 MB, and no file: neither is given back by the page cache.
	cmd := start(t, f, idA, "session",
		"x=$(head -c 24000000 /dev/zero | tr '\\0' x); while :; do sleep 1; done")
	await(t, "it has its memory", func() bool {
		u := must.Get(f.Usage(idA))(t)
		return u.MemoryBytes > 24<<20
	})
	must.Do(t, f.FreezeAll(t.Context(), idA))
	l := limits()
	l.MemoryMax = 16 << 20
	err := f.Limit(idA, l) // under cgroup v1 the kernel refuses what does not fit
	if err == nil {
		expect.True(t, endSignal(cmd.Wait()) != 0, "it has more than its limit, and lives")
	}
	t.Logf("lowered: %v", err)
	must.Do(t, f.Kill(killCtx(t), idA))
}

// TestPause: of a paused chat the session and the runs stand still. A start waits for its end, and
// is not refused. A crash leaves what another chatd ends.
func TestPause(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	both, _ := counting(t, f)
	is := func(what string, want bool) { t.Helper(); both(what, want, want) }
	is("at first", true)
	goOn := must.Get(f.Pause(t.Context(), idA))(t)
	is("paused", false)
	frozenIs(t, f, "")
	must.Do(t, f.CreateRun(idA, "late"))
	started := make(chan error, 1)
	go func() { started <- f.Start(idA, "runs/late", shell("exit 0")) }()
	is("still paused", false)
	select {
	case err := <-started:
		t.Errorf("a start in a paused chat: %v", err)
	default:
	}
	must.Do(t, goOn())
	must.Do(t, goOn())
	must.Do(t, <-started)
	is("after it", true)

	left, leave := context.WithCancel(t.Context())
	leave()
	goOn, err := f.Pause(left, idA)
	switch {
	case err == nil: // it stood still at the first look
		must.Do(t, goOn())
	case !errors.Is(err, context.Canceled):
		t.Errorf("a pause whose caller left: %v", err)
	}
	is("after a caller who left", true)

	must.Get(f.Pause(t.Context(), idA))(t)
	later := newFS(f.o) // as after a crash
	later.mode, later.bases, later.legacy = f.mode, f.bases, f.legacy
	must.Do(t, later.EndPause(idA))
	is("after a crash", true)
	must.Do(t, later.Freeze(idA))
	must.Do(t, later.EndPause(idA)) // which is none
	standsStill(t, later, sessionLeaf)
	must.Do(t, later.Thaw(idA))

	must.Do(t, later.Kill(killCtx(t), idA))
	must.Do(t, later.Remove(idA))
	must.Do(t, later.EndPause(idA))
}
