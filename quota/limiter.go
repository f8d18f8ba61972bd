package quota

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Limiter bounds simultaneous acts of all owners. Those that wait take turns by owner and by
// verb, so that no owner waits for all acts of another.
type Limiter struct {
	hold    time.Duration
	mu      sync.Mutex
	free    int
	waiting map[turn][]chan struct{}
	turns   []turn // those with a waiter; the first is next
}

// turn is what takes turns: the acts of one owner with one verb.
type turn struct{ owner, verb string }

// NewLimiter returns a limiter with n slots. One act occupies its slot for hold at most, however
// much longer it takes.
func NewLimiter(n int, hold time.Duration) *Limiter {
	return &Limiter{hold: hold, free: n, waiting: map[turn][]chan struct{}{}}
}

// Enter waits for a slot; leave frees the slot, and is idempotent. The error is the cause of
// ctx's end.
func (g *Limiter) Enter(ctx context.Context, owner, verb string) (leave func(), err error) {
	by := turn{owner, verb}
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.held(), nil
	}
	mine := make(chan struct{})
	if len(g.waiting[by]) == 0 {
		g.turns = append(g.turns, by)
	}
	g.waiting[by] = append(g.waiting[by], mine)
	g.mu.Unlock()
	select {
	case <-mine:
		return g.held(), nil
	case <-ctx.Done():
	}
	if !g.giveUp(by, mine) {
		g.next() // it was given a slot meanwhile
	}
	return nil, context.Cause(ctx)
}

// held arranges that a slot is freed: by leave, or after the limiter's hold.
func (g *Limiter) held() (leave func()) {
	var once sync.Once
	late := time.AfterFunc(g.hold, func() { once.Do(g.next) })
	return func() {
		late.Stop()
		once.Do(g.next)
	}
}

// next gives a free slot to the waiter whose turn it is.
func (g *Limiter) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.turns) == 0 {
		g.free++
		return
	}
	by := g.turns[0]
	g.turns = g.turns[1:]
	all := g.waiting[by]
	close(all[0])
	if g.waiting[by] = all[1:]; len(all) > 1 {
		g.turns = append(g.turns, by)
	} else {
		delete(g.waiting, by)
	}
}

// giveUp removes a waiter; it returns false for one that has a slot already.
func (g *Limiter) giveUp(by turn, mine chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting[by], mine)
	if i < 0 {
		return false
	}
	if g.waiting[by] = slices.Delete(g.waiting[by], i, i+1); len(g.waiting[by]) == 0 {
		delete(g.waiting, by)
		g.turns = slices.DeleteFunc(g.turns, func(t turn) bool { return t == by })
	}
	return true
}
