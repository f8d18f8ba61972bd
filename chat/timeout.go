package chat

import (
	"cmp"
	"time"
)

// CheckTimeoutMax reports an invalid timeout_max of a profile.
func CheckTimeoutMax(d Duration) error {
	if d.D() < time.Second || d > LongestTimeout {
		return Invalid("%s: want 1s to %s", d, LongestTimeout)
	}
	return nil
}

// shortestSleepAfter is more than a caller takes between two messages that belong together.
const shortestSleepAfter = Duration(5 * time.Second)

// CheckSleepAfter reports an invalid sleep_after of a profile.
func CheckSleepAfter(d Duration) error {
	if d != 0 && d < shortestSleepAfter {
		return Invalid("%s: want 0, for never, or at least %s", d, shortestSleepAfter)
	}
	return nil
}

// RunTimeout is the timeout of a run. A wish of zero means usual, or the maximum if that is less. A
// wish above the maximum is [ErrInvalid] and names it. If the timeout were shortened silently, a
// run that ends early would look as if its command hung.
func (p Profile) RunTimeout(wish, usual Duration) (time.Duration, error) {
	limit := cmp.Or(p.TimeoutMax, MaxTimeout)
	if wish > limit {
		return 0, Invalid("cannot run: timeout %s: want at most %s, which is timeout_max of profile %s", wish,
			limit, p.Name)
	}
	return cmp.Or(wish, min(usual, limit)).D(), nil
}
