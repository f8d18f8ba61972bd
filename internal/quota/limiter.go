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
	each    int // slots of one owner at most
	mu      sync.Mutex
	free    int
	held    map[string]int // slots, by owner
	waiting map[turn][]chan struct{}
	turns   []turn // those with a waiter; the first is next
}

// turn is what takes turns: the acts of one owner with one verb.
type turn struct{ owner, verb string }

// NewLimiter returns a limiter with n slots. One act occupies its slot for hold at most, however
// much longer it takes.
func NewLimiter(n int, hold time.Duration) *Limiter { return NewOwnerLimiter(n, n, hold) }

// NewOwnerLimiter is NewLimiter with at most each slots for one owner, also while others are free:
// where acts take hours, the next owner must not wait for one.
func NewOwnerLimiter(n, each int, hold time.Duration) *Limiter {
	return &Limiter{
		hold: hold, free: n, each: each,
		held: map[string]int{}, waiting: map[turn][]chan struct{}{},
	}
}

// Enter waits for a slot; leave frees the slot, and is idempotent. The error is the cause of
// ctx's end.
func (g *Limiter) Enter(ctx context.Context, owner, verb string) (leave func(), err error) {
	by := turn{owner, verb}
	g.mu.Lock()
	if g.mayEnter(owner) {
		g.enter(owner)
		g.mu.Unlock()
		return g.until(owner), nil
	}
	mine := make(chan struct{})
	if len(g.waiting[by]) == 0 {
		g.turns = append(g.turns, by)
	}
	g.waiting[by] = append(g.waiting[by], mine)
	g.mu.Unlock()
	select {
	case <-mine:
		return g.until(owner), nil
	case <-ctx.Done():
	}
	if !g.giveUp(by, mine) {
		g.leave(owner) // it was given a slot meanwhile
	}
	return nil, context.Cause(ctx)
}

// mayEnter and enter are for those that hold mu.
func (g *Limiter) mayEnter(owner string) bool { return g.free > 0 && g.held[owner] < g.each }

func (g *Limiter) enter(owner string) {
	g.free--
	g.held[owner]++
}

// until arranges that a slot is freed: by leave, or after the limiter's hold.
func (g *Limiter) until(owner string) (leave func()) {
	free := sync.OnceFunc(func() { g.leave(owner) })
	late := time.AfterFunc(g.hold, free)
	return func() {
		late.Stop()
		free()
	}
}

// leave frees a slot of the owner, and gives it to the waiter whose turn it is.
func (g *Limiter) leave(owner string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free++
	if g.held[owner]--; g.held[owner] == 0 {
		delete(g.held, owner)
	}
	i := slices.IndexFunc(g.turns, func(t turn) bool { return g.mayEnter(t.owner) })
	if i < 0 {
		return
	}
	by := g.turns[i]
	g.turns = slices.Delete(g.turns, i, i+1)
	g.enter(by.owner)
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
