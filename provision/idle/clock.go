package idle

import (
	"sync"
	"time"
)

// Clock notices that the wall clock was set, so that the time by which it was moved counts for no
// chat's idleness. It compares the wall clock with one that nobody sets and that goes on while the
// host sleeps. A chatd of the same boot goes on where the last one was ([Clock.Zero],
// [Clock.Begin]); after a boot the wall clock is believed.
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

// Zero is what the wall clock would have said when the host was booted, as of the last look. It
// moves when the clock is set.
func (c *Clock) Zero() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall.Add(-c.boot)
}

// Begin is the first look of a chatd, and returns by how much the wall clock was set while none was
// up. last is what Zero said to the last chatd of this boot, or zero if this is the first. What is
// in the future of the wall clock is moved in any case.
func (c *Clock) Begin(
	last time.Time, moveAll func(move func(used time.Time) time.Time),
) (step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !last.IsZero() {
		step = c.wall.Add(-c.boot).Sub(last)
	}
	if step.Abs() < minStep {
		step = 0
	}
	moveAll(func(used time.Time) time.Time { return moved(used, step, c.wall) })
	return step
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
