package provision

import (
	"testing"
	"time"
)

func TestLocks(t *testing.T) {
	var k keyedLocks
	unlock, err := k.lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.lock(t.Context(), "b")
	if err != nil {
		t.Fatal("two chats wait for each other")
	}
	other()
	got := make(chan struct{})
	go func() {
		if second, err := k.lock(t.Context(), "a"); err == nil {
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
