package cgroup

import (
	"context"
	"errors"
	"testing"
)

// TestPause: of a paused chat the session and the runs stand still. A start waits for its end, and
// is not refused. A crash leaves what another chatd ends.
func TestPause(t *testing.T) {
	f := open(t)
	must(t, f.Create(idA, limits()))
	inSession, session := counter(t, "session")
	inRun, run := counter(t, "run")
	start(t, f, idA, "session", inSession)
	must(t, f.CreateRun(idA, "counts"))
	start(t, f, idA, "runs/counts", inRun)
	is := func(what string, want bool) {
		t.Helper()
		if s, r := counts(t, session), counts(t, run); s != want || r != want {
			t.Errorf("%s: the session counts %t, the run %t", what, s, r)
		}
	}
	is("at first", true)
	goOn, err := f.Pause(t.Context(), idA)
	must(t, err)
	is("paused", false)
	frozenIs(t, f, "")
	must(t, f.CreateRun(idA, "late"))
	started := make(chan error, 1)
	go func() { started <- f.Start(idA, "runs/late", shell("exit 0")) }()
	is("still paused", false)
	select {
	case err := <-started:
		t.Errorf("a start in a paused chat: %v", err)
	default:
	}
	must(t, goOn())
	must(t, goOn())
	must(t, <-started)
	is("after it", true)

	left, leave := context.WithCancel(t.Context())
	leave()
	goOn, err = f.Pause(left, idA)
	switch {
	case err == nil: // it stood still at the first look
		must(t, goOn())
	case !errors.Is(err, context.Canceled):
		t.Errorf("a pause whose caller left: %v", err)
	}
	is("after a caller who left", true)

	_, err = f.Pause(t.Context(), idA)
	must(t, err)
	later := newFS(f.o) // as after a crash
	later.mode, later.bases, later.legacy = f.mode, f.bases, f.legacy
	must(t, later.EndPause(idA))
	is("after a crash", true)
	must(t, later.Freeze(idA))
	must(t, later.EndPause(idA)) // which is none
	standsStill(t, later, sessionLeaf)
	must(t, later.Thaw(idA))

	must(t, later.Kill(killCtx(t), idA))
	must(t, later.Remove(idA))
	must(t, later.EndPause(idA))
}
