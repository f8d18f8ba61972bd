package quota

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// enqueue waits at the limiter in a goroutine of its own, and returns once it does.
func enqueue(t *testing.T, g *Limiter, by turn, done func(leave func())) {
	t.Helper()
	g.mu.Lock()
	before := len(g.waiting[by])
	g.mu.Unlock()
	go func() {
		leave, err := g.Enter(context.Background(), by.owner, by.verb)
		if err != nil {
			t.Error(err)
			return
		}
		done(leave)
	}()
	for {
		g.mu.Lock()
		now := len(g.waiting[by])
		g.mu.Unlock()
		if now > before {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLimiterTakesTurns: the hundred creates of one owner are served in turn with one create of
// another owner.
func TestLimiterTakesTurns(t *testing.T) {
	g := NewLimiter(1, time.Minute)
	leave := must.Get(g.Enter(t.Context(), "many", "create"))(t)
	order := make(chan string, 101)
	in := func(name string) func(func()) {
		return func(leave func()) { order <- name; leave() }
	}
	for range 100 {
		enqueue(t, g, turn{"many", "create"}, in("many"))
	}
	enqueue(t, g, turn{"many", "wake"}, in("wake"))
	enqueue(t, g, turn{"one", "create"}, in("one"))
	leave()
	leave() // twice is once
	var got []string
	for range 102 {
		got = append(got, <-order)
	}
	if got[0] != "many" || got[1] != "wake" || got[2] != "one" {
		t.Errorf("the order is %q", got[:5])
	}
	checkFree(t, g, 1)
}

// TestLimiterBounds: at most as many are inside as there are slots, and a waiter that gives up
// keeps none.
func TestLimiterBounds(t *testing.T) {
	g := NewLimiter(3, time.Minute)
	var inside, peak atomic.Int32
	done := make(chan struct{})
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		if i%3 == 0 {
			cancel() // before or after it has a slot
		}
		go func() {
			defer func() { cancel(); done <- struct{}{} }()
			leave, err := g.Enter(ctx, "a", "create")
			if err != nil {
				return
			}
			defer leave()
			n := inside.Add(1)
			for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
		}()
	}
	for range 60 {
		<-done
	}
	if peak.Load() > 3 {
		t.Errorf("%d at once", peak.Load())
	}
	checkFree(t, g, 3)
}

// TestOwnerLimiter: an owner has at most its slots, also while others are free, and those are for
// the next owner without waiting.
func TestOwnerLimiter(t *testing.T) {
	g := NewOwnerLimiter(2, 1, time.Hour)
	enter := func(owner string) func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		leave, err := g.Enter(ctx, owner, "archive")
		must.True(t, err == nil, "%s: %v", owner, err)
		return leave
	}
	first := enter("many")
	second := make(chan func(), 1)
	enqueue(t, g, turn{"many", "archive"}, func(leave func()) { second <- leave })
	other := enter("one")
	third := make(chan func(), 1)
	enqueue(t, g, turn{"two", "archive"}, func(leave func()) { third <- leave })
	other()
	(<-third)() // and not a second one of the first owner
	expect.True(t, len(second) <= 0, "one owner has both slots")
	first()
	(<-second)()
	checkFree(t, g, 2)
}

// checkFree waits until all slots are free and none waits: one that left may still be on the way.
func checkFree(t *testing.T, g *Limiter, slots int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		free, waiting, turns := g.free, len(g.waiting), len(g.turns)
		g.mu.Unlock()
		if free == slots && waiting+turns == 0 {
			return
		}
		must.True(t, !time.Now().After(end),
			"%d slots are free, want %d; %d wait in %d turns", free, slots, waiting, turns)
	}
}
