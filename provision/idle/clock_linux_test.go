package idle

import (
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

// TestClockSteps: a step of the wall clock by a year, ahead or back, makes no chat idle for
// longer, whichever of the two clocks its used_at is from. Time that passes, slowly or while the
// host sleeps, does.
func TestClockSteps(t *testing.T) {
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		step, idle, want time.Duration // the chat was idle for so long, and is after the step
	}{
		"ahead":                        {year, time.Hour, time.Hour},
		"ahead, used by the new clock": {year, -year, 0},
		"ahead, used in between":       {year, -year / 2, 0},
		"back":                         {-year, time.Hour, time.Hour},
		"back, used by the new clock":  {-year, year + time.Hour, time.Hour},
		"back, idle for two years":     {-year, 2 * year, year},
		"a second":                     {time.Second, time.Hour, time.Hour + time.Second},
		"none":                         {0, time.Hour, time.Hour},
		"none, used later than now":    {0, -time.Hour, -time.Hour},
	} {
		wall, boot := start, time.Hour
		c := NewClock(func() (time.Time, time.Duration) { return wall, boot })
		wall, boot = wall.Add(90*time.Minute), boot+90*time.Minute
		used := wall.Add(-tt.idle)
		all := func(move func(time.Time) time.Time) { used = move(used) }
		if step := c.Keep(all); step != 0 || wall.Sub(used) != tt.idle {
			t.Errorf("%s: before it the clock stepped by %s", name, step)
		}
		wall = wall.Add(tt.step)
		for range 2 { // once is enough
			c.Keep(all)
			if got := wall.Sub(used); got != tt.want {
				t.Errorf("%s: idle for %s, want %s", name, got, tt.want)
			}
		}
	}
}

// TestClockBegins: a clock that was set while no chatd was up is noticed by the next one of the
// same boot; after a boot it is believed, but that no chat was used in the future.
func TestClockBegins(t *testing.T) {
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		step, idle, want time.Duration
		booted           bool
	}{
		"none":                {0, time.Hour, 2 * time.Hour, false},
		"ahead":               {year, time.Hour, 2 * time.Hour, false},
		"back":                {-year, time.Hour, 2 * time.Hour, false},
		"ahead, and a boot":   {year, time.Hour, year + 2*time.Hour, true},
		"back, and a boot":    {-year, time.Hour, 0, true},
		"half a minute ahead": {30 * time.Second, time.Hour, 2*time.Hour + 30*time.Second, false},
	} {
		wall, boot := start, time.Hour
		read := func() (time.Time, time.Duration) { return wall, boot }
		last := NewClock(read).Zero()
		used := wall.Add(-tt.idle)
		wall, boot = wall.Add(time.Hour+tt.step), boot+time.Hour // chatd was down for an hour
		if tt.booted {
			last = time.Time{}
		}
		NewClock(read).Begin(last, func(move func(time.Time) time.Time) { used = move(used) })
		if got := wall.Sub(used); got != tt.want {
			t.Errorf("%s: idle for %s, want %s", name, got, tt.want)
		}
	}
}

// TestSinceBoot: both clocks go on.
func TestSinceBoot(t *testing.T) {
	wall, boot := SinceBoot()
	time.Sleep(time.Millisecond)
	if w, b := SinceBoot(); boot <= 0 || b <= boot || !w.After(wall) {
		t.Errorf("%s and %s, then %s and %s", wall, boot, w, b)
	}
}
