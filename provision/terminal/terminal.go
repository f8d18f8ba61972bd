package terminal

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/tmux"
)

// Terminal is the terminal of a chat's session, for one caller, with what it prints.
type Terminal struct {
	*book
	logs *Logs
	tmux *tmux.Terminal
	log  *Recording // nil where nothing keeps what it prints
}

// Terminal returns the terminal of a chat's session; r is the recording of its output, or nil. The
// caller closes it.
func (l *Logs) Terminal(id chat.ID, t *tmux.Terminal, r *Recording) (*Terminal, error) {
	b, err := l.open(id)
	if err != nil {
		return nil, err
	}
	b.callers.Add(1)
	return &Terminal{book: b, logs: l, tmux: t, log: r}, nil
}

// Close ends the use of the terminal.
func (t *Terminal) Close() {
	t.callers.Add(-1)
	t.logs.leave(t.book)
}

// Type types in whole, before any other caller's input. It calls entering just before the part that
// a program may answer, with whether that is a command for a shell at its prompt. The error is
// [chat.ErrConflict], with what was typed, if a condition does not hold, and [chat.ErrBusy] if the
// caller's turn does not come before ctx ends.
func (t *Terminal) Type(
	ctx context.Context, in chat.Input, entering func(command bool),
) (tmux.Front, error) {
	done, err := t.typing.take(ctx, t.id)
	if err != nil {
		return tmux.Front{}, err
	}
	defer done()
	var front tmux.Front
	if in.Size != nil {
		err = t.tmux.Resize(ctx, in.Size.Rows, in.Size.Cols)
	}
	if err == nil && in.Types() {
		front, err = typist{t.tmux, t.log, t.ring, in, entering}.typeIf(ctx)
	}
	if err != nil {
		err = fmt.Errorf("cannot type into the terminal of chat %s: %w", t.id, err)
	}
	return front, err
}

// errWaited is the cause with which a wait's context ends; it is not a failure.
var errWaited = errors.New("its time is over")

// Answered lets do call [Terminal.Type] by the function that it gets, and then waits for what the
// terminal prints as in.Wait says. ended is closed when the session has ended. One caller at a time
// waits in a chat. The next one's text is typed after the first has its answer, or is refused as
// busy when its own time ends before.
func (t *Terminal) Answered(
	ctx context.Context, in chat.Input, ended <-chan struct{},
	do func(entering func(command bool)) (tmux.Front, error),
) (chat.Typed, error) {
	limit := cmp.Or(in.Wait.Max, chat.DefaultWait).D()
	within, cancel := context.WithTimeoutCause(ctx, limit, errWaited)
	defer cancel()
	done, err := t.waiting.take(within, t.id)
	if err != nil {
		return chat.Typed{}, err
	}
	defer done()
	if !t.log.Active() {
		return chat.Typed{}, fmt.Errorf("cannot wait for the terminal of chat %s: nothing keeps "+
			"what it prints; put the chat to sleep and wake it: %w", t.id, chat.ErrWrongPhase)
	}
	typed, err := t.await(ctx, within, in, ended, do)
	typed.Recording = err == nil && t.log.Active()
	return typed, err
}

// InUse reports whether a caller types into the chat's terminal, waits for what it prints, or waits
// for its turn.
func (l *Logs) InUse(id chat.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[id]
	return b != nil && b.callers.Load() > 0
}

// turn is held by one caller at a time.
type turn chan struct{}

// take waits for the turn at the terminal of a chat, or for the end of ctx.
func (t turn) take(ctx context.Context, id chat.ID) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for chat %s: %w: %w",
			id, context.Cause(ctx), chat.ErrBusy)
	}
}
