package chat

import (
	"testing"
	"time"
)

// TestParseAge: days and weeks, which Go's durations do not have.
func TestParseAge(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"30d": 30 * day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour,
		"90m": 90 * time.Minute, "0s": 0, "0": 0,
	} {
		if d, err := ParseAge(s); err != nil || d != want {
			t.Errorf("%s: %s, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "d", "-1d", "1.5d", "3", "1d1", "1h1d", "-5m", "99999999d"} {
		if d, err := ParseAge(s); err == nil {
			t.Errorf("%s: %s", s, d)
		}
	}
}
