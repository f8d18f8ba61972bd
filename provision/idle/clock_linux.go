package idle

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// Clock notices that the wall clock was set, so that the time by which it was moved counts for no
// chat's idleness. It compares the wall clock with one that nobody sets and that goes on while the
// host sleeps. A chatd of the same boot goes on where the last one was, by a file ([Clock.Begin]);
// after a boot the wall clock is believed.
type Clock struct {
	opt ClockOptions

	mu    sync.Mutex // until all are moved: no caller sees a chat that is not
	wall  time.Time
	boot  time.Duration
	saved time.Time // what the file has
}

// ClockOptions are what a [Clock] works on.
type ClockOptions struct {
	// Read returns the wall clock and the time since boot ([SinceBoot]).
	Read func() (wall time.Time, boot time.Duration)
	// File is for the next chatd of the same boot.
	File string
	// MoveAll applies the function that it gets to the used_at of every chat. Then how long each
	// chat is idle is what it was before the step, or less.
	MoveAll func(move func(used time.Time) time.Time)
	Log     *slog.Logger
}

// savedClock is what the next chatd of the same boot knows of the wall clock. Zero is what it would
// have said when the host was booted: that moves when the clock is set.
type savedClock struct {
	Boot string    `json:"boot"`
	Zero time.Time `json:"zero"`
}

// minStep is the smallest step that counts: NTP moves a clock by less, many times.
const minStep = time.Minute

// NewClock returns a clock that looks for the first time.
func NewClock(opt ClockOptions) *Clock {
	c := &Clock{opt: opt}
	c.wall, c.boot = opt.Read()
	return c
}

// Keep comes before each look at how long chats are idle. The file follows a step by one look: by then
// used_at of the chats is on the disk, and a chatd that is killed in between moves it once more, which
// makes no chat idle for longer.
func (c *Clock) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, boot := c.opt.Read()
	step := wall.Sub(c.wall) - (boot - c.boot)
	c.wall, c.boot = wall, boot
	if step.Abs() >= minStep {
		c.move(step)
		c.opt.Log.Warn("the clock was set: used_at of the chats moves with it", "by", step)
		return
	}
	zero := wall.Add(-boot)
	if zero.Sub(c.saved).Abs() < time.Second {
		return
	}
	c.saved = zero
	id, err := sys.BootID()
	text, _ := json.Marshal(savedClock{id, zero})
	if err == nil {
		err = safefs.ReplaceFile(c.opt.File, text, 0o600)
	}
	if err != nil {
		c.opt.Log.Warn("a clock that is set while chatd is down will be believed", "error", err)
	}
}

// Begin is the first look of a chatd: was the clock set since the last look of a chatd of this boot?
// A use that the wall clock has not reached yet is moved in any case.
func (c *Clock) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last savedClock
	text, err := os.ReadFile(c.opt.File)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.opt.Log.Warn("if the clock was set while chatd was down is not known", "error", err)
	}
	var step time.Duration
	if boot, err := sys.BootID(); err == nil && last.Boot == boot {
		step = c.wall.Add(-c.boot).Sub(last.Zero)
	}
	if step.Abs() < minStep {
		step = 0
	} else {
		c.opt.Log.Warn("the clock was set while chatd was down: used_at of the chats moves with it",
			"by", step)
	}
	c.move(step)
}

func (c *Clock) move(step time.Duration) {
	c.opt.MoveAll(func(used time.Time) time.Time { return moved(used, step, c.wall) })
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

// SinceBoot returns the wall clock, and the time since the host was booted, its sleep included
// (CLOCK_BOOTTIME in clock_gettime(2)).
func SinceBoot() (wall time.Time, boot time.Duration) {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) // it fails only where there is no such clock
	return time.Now().Round(0).UTC(), time.Duration(at.Nano())
}
