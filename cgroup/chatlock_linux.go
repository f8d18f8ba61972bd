package cgroup

import (
	"sync"

	"github.com/chatd/chatd/chat"
)

// chatLocks gives each chat a lock of its own, as long as somebody uses it. With any fixed number
// of locks a chat that is held up would hold up those that share one.
type chatLocks struct {
	mu  sync.Mutex
	all map[chat.ID]*chatLock
}

type chatLock struct {
	held  sync.Mutex
	of    *chatLocks
	id    chat.ID
	users int
}

func (c *chatLocks) lock(id chat.ID) *chatLock {
	c.mu.Lock()
	if c.all == nil {
		c.all = map[chat.ID]*chatLock{}
	}
	l := c.all[id]
	if l == nil {
		l = &chatLock{of: c, id: id}
		c.all[id] = l
	}
	l.users++
	c.mu.Unlock()
	l.held.Lock()
	return l
}

// Unlock gives the lock back.
func (l *chatLock) Unlock() {
	l.held.Unlock()
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(l.of.all, l.id)
	}
}
