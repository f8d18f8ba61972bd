package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func probeState(t *testing.T, f *FS) map[chat.LayerName]chat.Layer {
	t.Helper()
	found := map[chat.LayerName]chat.Layer{}
	for _, l := range f.Probe(killCtx(t), asOff) {
		t.Logf("%s: %s by %q: %s %s", l.Name, l.State, l.By, l.Probe, l.Fix)
		found[l.Name] = l
	}
	entries := must.Get(os.ReadDir(f.bases.Unified))(t)
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("the probe left %s", e.Name())
		}
	}
	return found
}

func TestProbe(t *testing.T) {
	f := open(t)
	for name, l := range probeState(t, f) {
		if l.State != chat.LayerOn || l.By != f.Mode() || l.Probe == "" || l.Fix != "" || l.At.IsZero() {
			t.Errorf("%s: %+v, want on", name, l)
		}
		if name == chat.LayerCPU && !strings.Contains(l.Probe, "pays back") {
			t.Errorf("%s promises more than an average: %q", name, l.Probe)
		}
	}
}

// TestProbeWithout switches off one limit at a time: its probe must see that, and
// the others must not.
func TestProbeWithout(t *testing.T) {
	for _, off := range []chat.LayerName{chat.LayerMemory, chat.LayerPids, chat.LayerCPU} {
		t.Run(string(off), func(t *testing.T) {
			for name, l := range probeState(t, open(t, off)) {
				want := chat.LayerOn
				if name == off {
					want = chat.LayerOff
				}
				expect.Equal(t, l.State, want, "without %s: %s", off, name)
			}
		})
	}
}

// asOff is a layer after a trial that failed for whatever reason.
func asOff(l chat.Layer, err error, fix string) chat.Layer {
	l.State, l.Probe, l.Fix = chat.LayerOff, err.Error(), fix
	return l
}

// TestProbeWithoutTime: a host that has no time for a trial has not shown that a wall is missing.
func TestProbeWithoutTime(t *testing.T) {
	f := open(t)
	ctx, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	var mu sync.Mutex
	late := 0
	f.Probe(ctx, func(l chat.Layer, err error, _ string) chat.Layer {
		mu.Lock()
		defer mu.Unlock()
		if late++; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", l.Name, err)
		}
		return l
	})
	expect.True(t, late == 3, "%d trials were late, want 3", late)
}

func TestProbeGivesUp(t *testing.T) {
	f := open(t)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	for _, l := range f.Probe(ctx, asOff) {
		expect.True(t, l.State == chat.LayerOff,
			"%s is %s though nothing could be tried", l.Name, l.State)
	}
}

// BenchmarkStart compares a start in a leaf with a plain one, in one run: read the
// ratio, not the figures.
func BenchmarkStart(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			must.Do(b, exec.Command("/bin/true").Run())
		}
	})
	f := open(b)
	must.Do(b, f.Create(idA, limits()))
	b.Run("leaf", func(b *testing.B) {
		for b.Loop() {
			benchRun(b, f, false)
		}
	})
	b.Run("leaf made and removed", func(b *testing.B) {
		for b.Loop() {
			benchRun(b, f, true)
		}
	})
	b.Run("create and remove", func(b *testing.B) {
		for b.Loop() {
			must.Do(b, f.Create(idB, limits()))
			must.Do(b, f.Remove(idB))
		}
	})
}

func benchRun(b *testing.B, f *FS, fresh bool) {
	leaf := "session"
	if fresh {
		leaf = "runs/x"
		must.Do(b, f.CreateRun(idA, "x"))
	}
	cmd := exec.Command("/bin/true")
	must.Do(b, f.Start(idA, leaf, cmd))
	must.Do(b, cmd.Wait())
	if fresh {
		must.Do(b, f.RemoveRun(idA, "x"))
	}
}

// TestSpin: a quota is missing when the child was over it again and again. One chunk of time, as a
// starved machine counts it, shows nothing, nor does a child that got no time.
func TestSpin(t *testing.T) {
	const ms = time.Millisecond
	none := make([]time.Duration, 8)
	for name, c := range map[string]struct {
		used               []time.Duration // of one window after another
		missing, throttled bool
	}{
		"no time":     {used: none},
		"its quota":   {used: []time.Duration{2 * ms, 3 * ms, 2 * ms, 2 * ms, 2 * ms, 2 * ms}},
		"one chunk":   {used: append([]time.Duration{0, 2000 * ms}, none...)},
		"four chunks": {used: []time.Duration{80 * ms, 0, 80 * ms, 80 * ms, 0, 80 * ms}},
		"no quota":    {used: slices.Repeat([]time.Duration{79 * ms}, 5), missing: true},
		"half busy": {used: []time.Duration{40 * ms, 0, 30 * ms, 40 * ms, 20 * ms, 11 * ms},
			missing: true},
		"throttled": {used: slices.Repeat([]time.Duration{80 * ms}, 5), throttled: true},
	} {
		s, at, used := spin{throttled: c.throttled}, time.Unix(1000, 0), time.Duration(0)
		s.look(at, used)
		for _, more := range c.used {
			used += more
			s.look(at.Add(spinWindow/2), used) // within the window
			at = at.Add(spinWindow)
			s.look(at, used)
		}
		err := s.failed()
		unknown := errors.Is(err, context.DeadlineExceeded)
		if c.throttled != (err == nil) || !c.throttled && unknown == c.missing {
			t.Errorf("%s: %v", name, err)
		}
	}
}
