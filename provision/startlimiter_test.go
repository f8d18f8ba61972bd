package provision

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// enqueue waits at the limiter in a goroutine of its own, and returns once it does.
func enqueue(t *testing.T, g *startLimiter, turn startTurn, done func(leave func())) {
	t.Helper()
	g.mu.Lock()
	before := len(g.waiting[turn])
	g.mu.Unlock()
	go func() {
		leave, err := g.enter(context.Background(), turn)
		if err != nil {
			t.Error(err)
			return
		}
		done(leave)
	}()
	for {
		g.mu.Lock()
		now := len(g.waiting[turn])
		g.mu.Unlock()
		if now > before {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestStartLimiterTakesTurns: who creates a hundred chats keeps another owner's one wake waiting
// for one.
func TestStartLimiterTakesTurns(t *testing.T) {
	g := newStartLimiter(1)
	leave, err := g.enter(t.Context(), startTurn{"many", "create"})
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 101)
	in := func(name string) func(func()) {
		return func(leave func()) { order <- name; leave() }
	}
	for range 100 {
		enqueue(t, g, startTurn{"many", "create"}, in("many"))
	}
	enqueue(t, g, startTurn{"many", "wake"}, in("wake"))
	enqueue(t, g, startTurn{"one", "create"}, in("one"))
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

// TestStartLimiterBounds: never more are inside than there are places, and who gives up takes none.
func TestStartLimiterBounds(t *testing.T) {
	g := newStartLimiter(3)
	var inside, most atomic.Int32
	done := make(chan struct{})
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		if i%3 == 0 {
			cancel() // before or after it has a place
		}
		go func() {
			defer func() { cancel(); done <- struct{}{} }()
			leave, err := g.enter(ctx, startTurn{"a", "create"})
			if err != nil {
				return
			}
			defer leave()
			n := inside.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
		}()
	}
	for range 60 {
		<-done
	}
	if most.Load() > 3 {
		t.Errorf("%d at once", most.Load())
	}
	checkFree(t, g, 3)
}

// checkFree waits until nobody is inside or waits: who left may still be on the way.
func checkFree(t *testing.T, g *startLimiter, places int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		free, waiting, turns := g.free, len(g.waiting), len(g.turns)
		g.mu.Unlock()
		if free == places && waiting+turns == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d places are free, want %d; %d wait in %d turns", free, places, waiting, turns)
		}
	}
}
