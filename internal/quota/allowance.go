package quota

import (
	"context"
	"time"

	"github.com/chatd/chatd/chat"
)

// Allowance bounds how often something happens: burst times immediately, and once more each time
// that every has passed. It is for one goroutine at a time.
type Allowance struct {
	burst, left int
	every       time.Duration
	now         func() time.Time
	at          time.Time // when it last grew
}

// NewAllowance returns a full allowance.
func NewAllowance(burst int, every time.Duration, now func() time.Time) *Allowance {
	return &Allowance{burst: burst, left: burst, every: every, now: now, at: now()}
}

// Take takes one from the allowance, and reports whether there was one.
func (a *Allowance) Take() bool {
	if a.refill(); a.left == 0 {
		return false
	}
	a.left--
	return true
}

// Wait takes one from the allowance as soon as there is one; it is false if ctx ends first.
func (a *Allowance) Wait(ctx context.Context) bool {
	for {
		if a.Take() {
			return ctx.Err() == nil
		}
		if chat.Sleep(ctx, a.every-a.now().Sub(a.at)) != nil {
			return false
		}
	}
}

// Full reports whether nothing was taken that has not grown again.
func (a *Allowance) Full() bool {
	a.refill()
	return a.left == a.burst
}

func (a *Allowance) refill() {
	if more := int(a.now().Sub(a.at) / a.every); more > 0 {
		a.left, a.at = min(a.burst, a.left+more), a.at.Add(time.Duration(more)*a.every)
	}
}
