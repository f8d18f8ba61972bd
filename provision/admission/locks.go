package admission

import (
	"context"
	"fmt"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Locks gives one lock per chat: one caller at a time changes a chat, and
// chats never wait for each other. The zero value is ready.
type Locks struct {
	mu    sync.Mutex
	locks map[chat.ID]*lock
}

type lock struct {
	held  chan struct{}
	users int
	// wanted ends when a second caller comes; want ends it.
	wanted context.Context
	want   context.CancelCauseFunc
	// why is what its holder does for so long that nobody shall wait; nil is nothing.
	why error
}

// add makes the lock of a chat for its first caller. Its own caller holds mu.
func (k *Locks) add(id chat.ID) *lock {
	if k.locks == nil {
		k.locks = map[chat.ID]*lock{}
	}
	l := &lock{held: make(chan struct{}, 1), users: 1}
	l.wanted, l.want = context.WithCancelCause(context.Background())
	k.locks[id] = l
	return l
}

// Lock waits for the chat's lock or for the end of ctx; unlock releases the lock.
func (k *Locks) Lock(ctx context.Context, id chat.ID) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[id]
	switch {
	case l == nil:
		l = k.add(id)
	case l.why != nil:
		defer k.mu.Unlock()
		return nil, l.why
	default:
		l.users++
		l.want(ErrWanted)
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

// TryLock takes the chat's lock if it is free.
func (k *Locks) TryLock(id chat.ID) (unlock func(), free bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks[id] != nil {
		return nil, false
	}
	l := k.add(id)
	l.held <- struct{}{}
	return func() { k.release(id, l) }, true
}

// Occupy has callers who come from now on get why in place of the lock, until its holder, who calls
// this, releases it.
func (k *Locks) Occupy(id chat.ID, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.locks[id].why = why
}

func (k *Locks) release(id chat.ID, l *lock) {
	k.mu.Lock()
	l.why = nil
	k.mu.Unlock()
	<-l.held
	k.leave(id, l)
}

func (k *Locks) leave(id chat.ID, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, id)
	}
}

// ErrWanted ends what gives way to a caller.
var ErrWanted = fmt.Errorf("the chat is used again: %w", chat.ErrBusy)

// UntilWanted returns a context that ends when another caller waits for the lock of a chat, which
// the caller got by TryLock.
func (k *Locks) UntilWanted(ctx context.Context, id chat.ID) (context.Context, context.CancelFunc) {
	k.mu.Lock()
	wanted := k.locks[id].wanted
	k.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(wanted, func() { cancel(context.Cause(wanted)) })
	return ctx, func() { stop(); cancel(nil) }
}
