package idle

import (
	"sync"
	"time"
)

// Clock notices that the wall clock was set, so that the time by which it was moved counts for no
// chat's idleness. It compares the wall clock with one that nobody sets and that goes on while the
// host sleeps. What happens while chatd is down it does not see: the wall clock is believed then.
type Clock struct {
	read func() (wall time.Time, boot time.Duration)

	mu   sync.Mutex
	wall time.Time
	boot time.Duration
}

// minStep is the smallest step that counts: NTP moves a clock by less, many times.
const minStep = time.Minute

// NewClock returns a clock over read, which returns the wall clock and the time since boot
// ([SinceBoot]).
func NewClock(read func() (wall time.Time, boot time.Duration)) *Clock {
	c := &Clock{read: read}
	c.wall, c.boot = read()
	return c
}

// Keep calls moveAll if the wall clock was set since the last call, and returns by how much.
// moveAll applies the function that it gets to the used_at of every chat. Then how long each chat
// is idle is what it was before the step, or less.
func (c *Clock) Keep(moveAll func(move func(used time.Time) time.Time)) (step time.Duration) {
	c.mu.Lock() // until all are moved: no caller sees a chat that is not
	defer c.mu.Unlock()
	wall, boot := c.read()
	step = wall.Sub(c.wall) - (boot - c.boot)
	c.wall, c.boot = wall, boot
	if step.Abs() < minStep {
		return 0
	}
	moveAll(func(used time.Time) time.Time { return moved(used, step, wall) })
	return step
}

// Begin moves what is in the future of the wall clock, which was set back while chatd was down.
func (c *Clock) Begin(moveAll func(move func(used time.Time) time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moveAll(func(used time.Time) time.Time { return moved(used, 0, c.wall) })
}

// moved is a chat's used_at on a clock that stepped to now. Nobody knows which of the times before
// and after the step was right, so the result never makes the chat idle for longer than used does
// by either: after a step back, what is in the past also by the new clock stays.
func moved(used time.Time, step time.Duration, now time.Time) time.Time {
	if step > 0 || used.After(now) {
		used = used.Add(step)
	}
	if used.After(now) {
		return now
	}
	return used
}
