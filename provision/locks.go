package provision

import (
	"context"
	"fmt"
	"sync"

	"github.com/chatd/chatd/chat"
)

// keyedLocks gives one lock per chat: one caller at a time changes a chat, and
// chats never wait for each other. The zero value is ready.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[chat.ID]*keyedLock
}

type keyedLock struct {
	held  chan struct{}
	users int
}

// lock waits for the chat's lock or for the end of ctx; unlock releases the lock.
func (k *keyedLocks) lock(ctx context.Context, id chat.ID) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[chat.ID]*keyedLock{}
	}
	l := k.locks[id]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
		k.locks[id] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; k.leave(id, l) }, nil
	case <-ctx.Done():
		k.leave(id, l)
		return nil, fmt.Errorf("cannot wait for chat %s: %w: %w", id, context.Cause(ctx), chat.ErrBusy)
	}
}

// tryLock takes the chat's lock if it is free.
func (k *keyedLocks) tryLock(id chat.ID) (unlock func(), free bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks[id] != nil {
		return nil, false
	}
	if k.locks == nil {
		k.locks = map[chat.ID]*keyedLock{}
	}
	l := &keyedLock{held: make(chan struct{}, 1), users: 1}
	l.held <- struct{}{}
	k.locks[id] = l
	return func() { <-l.held; k.leave(id, l) }, true
}

func (k *keyedLocks) leave(id chat.ID, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, id)
	}
}
