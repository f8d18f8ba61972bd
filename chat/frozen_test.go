package chat

import (
	"errors"
	"testing"
	"time"
)

// TestCheckFreezeAfter: a chat is frozen before it sleeps, or never.
func TestCheckFreezeAfter(t *testing.T) {
	const second = Duration(time.Second)
	for _, tt := range []struct {
		freeze, sleep Duration
		ok            bool
	}{
		{0, 0, true}, {0, 5 * second, true}, {5 * second, 0, true}, {5 * second, 6 * second, true},
		{4 * second, 0, false}, {6 * second, 6 * second, false}, {7 * second, 6 * second, false},
		{-second, 0, false},
	} {
		err := CheckFreezeAfter(tt.freeze, tt.sleep)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("freeze_after %s, sleep_after %s: %v", tt.freeze, tt.sleep, err)
		}
	}
}
