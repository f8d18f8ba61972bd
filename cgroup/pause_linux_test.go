package cgroup

import (
	"context"
	"errors"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// TestPause: of a paused chat the session and the runs stand still. A start waits for its end, and
// is not refused. A crash leaves what another chatd ends.
func TestPause(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	inSession, session := counter(t, "session")
	inRun, run := counter(t, "run")
	start(t, f, idA, "session", inSession)
	must.Do(t, f.CreateRun(idA, "counts"))
	start(t, f, idA, "runs/counts", inRun)
	is := func(what string, want bool) {
		t.Helper()
		if s, r := counts(t, session), counts(t, run); s != want || r != want {
			t.Errorf("%s: the session counts %t, the run %t", what, s, r)
		}
	}
	is("at first", true)
	goOn, err := f.Pause(t.Context(), idA)
	must.Do(t, err)
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
	goOn, err = f.Pause(left, idA)
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
