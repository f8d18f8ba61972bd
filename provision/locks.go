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
	// wanted is closed when a second caller comes; waits says that it is.
	wanted chan struct{}
	waits  bool
	// why is what its holder does for so long that nobody shall wait; nil is nothing.
	why error
}

func newKeyedLock() *keyedLock {
	return &keyedLock{held: make(chan struct{}, 1), wanted: make(chan struct{})}
}

// lock waits for the chat's lock or for the end of ctx; unlock releases the lock.
func (k *keyedLocks) lock(ctx context.Context, id chat.ID) (unlock func(), err error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[chat.ID]*keyedLock{}
	}
	l := k.locks[id]
	if l == nil {
		l = newKeyedLock()
		k.locks[id] = l
	}
	if l.why != nil {
		defer k.mu.Unlock()
		return nil, l.why
	}
	if l.users++; l.users > 1 && !l.waits {
		l.waits = true
		close(l.wanted)
	}
	k.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() { k.release(id, l) }, nil
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
	l := newKeyedLock()
	l.users = 1
	l.held <- struct{}{}
	k.locks[id] = l
	return func() { k.release(id, l) }, true
}

// occupy has callers who come from now on get why in place of the lock, until its holder, who calls
// this, releases it.
func (k *keyedLocks) occupy(id chat.ID, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.locks[id].why = why
}

func (k *keyedLocks) release(id chat.ID, l *keyedLock) {
	k.mu.Lock()
	l.why = nil
	k.mu.Unlock()
	<-l.held
	k.leave(id, l)
}

func (k *keyedLocks) leave(id chat.ID, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, id)
	}
}

// errWanted ends what gives way to a caller.
var errWanted = fmt.Errorf("the chat is used again: %w", chat.ErrBusy)

// untilWanted returns a context that ends when another caller waits for the lock of a chat, which
// the caller got by tryLock.
func (k *keyedLocks) untilWanted(ctx context.Context, id chat.ID) (context.Context, context.CancelFunc) {
	k.mu.Lock()
	wanted := k.locks[id].wanted
	k.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-wanted:
			cancel(errWanted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
