package idle

import (
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"log/slog"
	"os"
	"path/filepath"
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
		used := start
		c := testClock(t, &wall, &boot, &used)
		wall, boot = wall.Add(90*time.Minute), boot+90*time.Minute
		used = wall.Add(-tt.idle)
		if c.Keep(); wall.Sub(used) != tt.idle {
			t.Errorf("%s: before it the clock stepped: idle for %s", name, wall.Sub(used))
		}
		wall = wall.Add(tt.step)
		for range 2 { // once is enough
			c.Keep()
			expect.Equal(t, wall.Sub(used), tt.want, "%s: idle for", name)
		}
	}
}

// testClock is a clock over wall and boot that moves used.
func testClock(t *testing.T, wall *time.Time, boot *time.Duration, used *time.Time) *Clock {
	t.Helper()
	return NewClock(ClockOptions{
		Read:    func() (time.Time, time.Duration) { return *wall, *boot },
		File:    filepath.Join(t.TempDir(), "clock"),
		MoveAll: func(move func(time.Time) time.Time) { *used = move(*used) },
		Log:     slog.New(slog.DiscardHandler),
	})
}

// TestClockBegins: a clock that was set while no chatd was up is noticed by the next one of the
// same boot, and not again later, when the file has followed; after another boot, and where the file
// is torn, it is believed, but that no chat was used in the future.
func TestClockBegins(t *testing.T) {
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	const another = `{"boot":"another","zero":"2026-11-25T12:00:00Z"}`
	for name, tt := range map[string]struct {
		step, idle, want time.Duration
		spoil            string // what the file is replaced by
	}{
		"none":                {0, time.Hour, 2 * time.Hour, ""},
		"ahead":               {year, time.Hour, 2 * time.Hour, ""},
		"back":                {-year, time.Hour, 2 * time.Hour, ""},
		"ahead, and a boot":   {year, time.Hour, year + 2*time.Hour, another},
		"ahead, a torn file":  {year, time.Hour, year + 2*time.Hour, `{"boot`},
		"back, and a boot":    {-year, time.Hour, 0, another},
		"half a minute ahead": {30 * time.Second, time.Hour, 2*time.Hour + 30*time.Second, ""},
	} {
		wall, boot := start, time.Hour
		used := wall.Add(-tt.idle)
		c := testClock(t, &wall, &boot, &used)
		c.Keep()
		if tt.spoil != "" {
			must.Do(t, os.WriteFile(c.opt.File, []byte(tt.spoil), 0o600))
		}
		wall, boot = wall.Add(time.Hour+tt.step), boot+time.Hour // chatd was down for an hour
		for range 2 {
			next := NewClock(c.opt) // of the next chatd
			next.Begin()
			next.Keep()
			expect.Equal(t, wall.Sub(used), tt.want, "%s: idle for", name)
		}
	}
}

// TestSinceBoot: both clocks go on.
func TestSinceBoot(t *testing.T) {
	wall, boot := SinceBoot()
	time.Sleep(time.Millisecond)
	w, b := SinceBoot()
	expect.True(t, boot > 0 && b > boot && w.After(wall), "%s and %s, then %s and %s", wall, boot, w, b)
}
