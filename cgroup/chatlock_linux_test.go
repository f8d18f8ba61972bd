package cgroup

import (
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestChatLocks: a chat that is held up holds up no other, however many there are.
func TestChatLocks(t *testing.T) {
	var f FS
	var held []*chatLock
	for i := range 500 {
		held = append(held, f.lock(chat.ID(fmt.Sprintf("%016x", i))))
	}
	for _, l := range held {
		l.Unlock()
	}
	if len(f.locks.all) > 0 {
		t.Errorf("%d locks are kept", len(f.locks.all))
	}
}
