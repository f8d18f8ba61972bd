package filecall

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// Calls are the running calls, by chat. The zero value is ready.
type Calls struct {
	mu    sync.Mutex
	chats map[chat.ID]*chatCalls
}

// chatCalls are the calls of one chat: maxTools run simultaneously, the others wait. Each
// takes some ten tasks of the chat's own limit.
type chatCalls struct {
	slots chan struct{}
	cuts  map[*context.CancelCauseFunc]bool
}

const maxTools = 4

// errCut ends the calls of a chat that is reaped.
var errCut = fmt.Errorf("the chat is being reaped: %w", chat.ErrWrongPhase)

// Begin waits for a slot of the chat. Until done is called, Cut cancels the returned context.
func (f *Calls) Begin(ctx context.Context, id chat.ID) (_ context.Context, done func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := f.join(id, &cancel)
	leave := func() { cancel(nil); f.leave(id, &cancel) }
	select {
	case c.slots <- struct{}{}:
		return ctx, func() { <-c.slots; leave() }, nil
	case <-ctx.Done():
		err := fmt.Errorf("cannot wait for the other file tools of chat %s: %w",
			id, context.Cause(ctx))
		leave()
		return ctx, nil, err
	}
}

func (f *Calls) join(id chat.ID, cancel *context.CancelCauseFunc) *chatCalls {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chats == nil {
		f.chats = map[chat.ID]*chatCalls{}
	}
	c := f.chats[id]
	if c == nil {
		c = &chatCalls{make(chan struct{}, maxTools), map[*context.CancelCauseFunc]bool{}}
		f.chats[id] = c
	}
	c.cuts[cancel] = true
	return c
}

func (f *Calls) leave(id chat.ID, cancel *context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.chats[id]
	if delete(c.cuts, cancel); len(c.cuts) == 0 {
		delete(f.chats, id)
	}
}

// Cut cancels the chat's calls, running and waiting ones: the chat is being reaped.
func (f *Calls) Cut(id chat.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.chats[id]; c != nil {
		for cancel := range c.cuts {
			(*cancel)(errCut)
		}
	}
}

// drainTime bounds Drain, as a tool may sleep in the kernel.
const drainTime = 10 * time.Second

// Drain is Cut, and waits within bounds until the chat has no call. The caller lets no new one
// begin.
func (f *Calls) Drain(ctx context.Context, id chat.ID) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for f.Cut(id); f.UnderWay(id) && ctx.Err() == nil; f.Cut(id) {
		time.Sleep(time.Millisecond)
	}
}

// UnderWay reports whether the chat has a call that runs or waits.
func (f *Calls) UnderWay(id chat.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chats[id] != nil
}
