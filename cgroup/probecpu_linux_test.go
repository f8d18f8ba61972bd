package cgroup

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

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
