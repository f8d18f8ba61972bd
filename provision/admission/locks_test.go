package admission

import (
	"errors"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"testing"
	"time"
)

func TestLocks(t *testing.T) {
	var k Locks
	unlock := must.Get(k.Lock(t.Context(), "a"))(t)
	other, err := k.Lock(t.Context(), "b")
	must.True(t, err == nil, "two chats wait for each other")
	other()
	got := make(chan struct{})
	go func() {
		if second, err := k.Lock(t.Context(), "a"); err == nil {
			close(got)
			second()
		}
	}()
	select {
	case <-got:
		t.Error("one lock was held twice")
	case <-time.After(20 * time.Millisecond):
	}
	unlock()
	<-got
	for range 60_000 { // the last holder may still be on its way out
		k.mu.Lock()
		n := len(k.locks)
		k.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("locks of nobody are kept")
}

// TestOccupied: while a lock is held for long its callers hear why, and later get it.
func TestOccupied(t *testing.T) {
	var k Locks
	unlock, err := k.Lock(t.Context(), "a")
	must.Do(t, err)
	waiting := make(chan error)
	go func() { // who waits already goes on waiting
		unlock, err := k.Lock(t.Context(), "a")
		if err == nil {
			unlock()
		}
		waiting <- err
	}()
	for waits := false; !waits; {
		k.mu.Lock()
		waits = k.locks["a"].users == 2
		k.mu.Unlock()
	}
	why := errors.New("it is archived")
	k.Occupy("a", why)
	if _, err := k.Lock(t.Context(), "a"); !errors.Is(err, why) {
		t.Errorf("while it is held: %v", err)
	}
	if unlock, err := k.Lock(t.Context(), "b"); err != nil {
		t.Errorf("another: %v", err)
	} else {
		unlock()
	}
	unlock()
	expect.Equal(t, <-waiting, nil, "who waited")
	unlock, err = k.Lock(t.Context(), "a")
	must.True(t, err == nil, "afterwards: %v", err)
	unlock()
	expect.True(t, len(k.locks) <= 0, "there are %d locks", len(k.locks))
}
