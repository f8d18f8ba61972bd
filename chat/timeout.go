package chat

import (
	"cmp"
	"fmt"
	"time"
)

// CheckTimeoutMax reports a maximum that a profile cannot have.
func CheckTimeoutMax(d Duration) error {
	if d.D() < time.Second || d > LongestTimeout {
		return fmt.Errorf("%s: want 1s to %s: %w", d, LongestTimeout, ErrInvalid)
	}
	return nil
}

// RunTimeout is the timeout of a run that wishes for one; zero is no wish, and then it is
// the usual one, or the maximum where that is less. A wish above the maximum is an
// [ErrInvalid] that names it: a run that was ended early without a word would look as if
// its command hung.
func (p Profile) RunTimeout(wish, usual Duration) (time.Duration, error) {
	limit := cmp.Or(p.TimeoutMax, MaxTimeout)
	if wish > limit {
		return 0, fmt.Errorf("cannot run: timeout %s: want at most %s, which is timeout_max of profile %s: %w", wish, limit, p.Name, ErrInvalid)
	}
	return cmp.Or(wish, min(usual, limit)).D(), nil
}
