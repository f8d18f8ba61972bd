package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/console"
	"github.com/chatd/chatd/ring"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// Input types text or presses keys in the chat's terminal, and wakes the chat
// if it is asleep. Inputs at the same time are typed one after the other.
func (m *Manager) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	rec, s, err := m.readyToType(ctx, id, in)
	if err != nil {
		return err
	}
	r, done, err := m.logs.Open(rec.ID)
	if err != nil {
		return err
	}
	defer done()
	_, err = m.typeInto(ctx, rec, consoleOf(rec, s, r), in, func(bool) {})
	return err
}

// readyToType checks an input and finds its terminal.
func (m *Manager) readyToType(ctx context.Context, id chat.ID, in chat.Input) (state.Record, *session, error) {
	if err := console.Check(in); err != nil {
		return state.Record{}, nil, err
	}
	rec, err := m.reach(ctx, id)
	if err == nil {
		err = m.switchedOff(ctx, rec, chat.ToolTerminal, "input")
	}
	if err != nil {
		return rec, nil, err
	}
	if s := m.session(id); in.OnlyIf.NeedsSession() && (s == nil || !s.init.Alive()) {
		return rec, nil, fmt.Errorf("cannot type into the terminal of chat %s: want that %s, but it is asleep; nothing was typed: %w", id, in.OnlyIf, chat.ErrConflict)
	}
	return m.use(ctx, id)
}

// typeInto types what in says, whole before anybody else's. entering is called just before what
// a program may answer, and says whether that is a command for a shell at its prompt.
func (m *Manager) typeInto(ctx context.Context, rec state.Record, t console.Terminal, in chat.Input, entering func(command bool)) (tmux.Front, error) {
	detail := map[string]string{"bytes": fmt.Sprint(len(in.Text)), "keys": fmt.Sprint(len(in.Keys))}
	if in.OnlyIf != nil {
		detail["only_if"] = in.OnlyIf.String()
	}
	if err := m.audit(ctx, rec, "input", "intent", detail); err != nil {
		return tmux.Front{}, err
	}
	unlock, err := m.keys.lock(ctx, rec.ID)
	if err != nil {
		return tmux.Front{}, errors.Join(err, m.auditOutcome(ctx, rec, "input", detail, err))
	}
	defer unlock()
	front, err := t.Type(ctx, in, entering)
	m.touch(rec)
	return front, errors.Join(err, m.auditOutcome(ctx, rec, "input", detail, err))
}

// InputWait is Input that waits for in.Wait and returns the output since. Where Plain is not set,
// package terminal renders it from the span Output. One caller at a time waits in a chat. The
// next one's text is typed after the first has its answer, or is refused as busy when its own
// time ends before. Input does not wait: it may be C-c.
func (m *Manager) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	if in.Wait == nil {
		return chat.Typed{}, fmt.Errorf("cannot wait: no wait is given: %w", chat.ErrInvalid)
	}
	rec, s, err := m.readyToType(ctx, id, in)
	if err != nil {
		return chat.Typed{}, err
	}
	limit := in.Wait.Max
	if limit == 0 {
		limit = chat.DefaultWait
	}
	within, cancel := context.WithTimeoutCause(ctx, limit.D(), errWaited)
	defer cancel()
	unlock, err := m.typing.lock(within, id)
	if err != nil {
		return chat.Typed{}, err
	}
	defer unlock()
	r, done, err := m.logs.Open(rec.ID)
	if err != nil {
		return chat.Typed{}, err
	}
	defer done()
	if !s.log.Active() {
		return chat.Typed{}, fmt.Errorf("cannot wait for the terminal of chat %s: nothing keeps what it prints; put the chat to sleep and wake it: %w", id, chat.ErrWrongPhase)
	}
	return m.typeAndWait(ctx, within, rec, s, r, in)
}

// errWaited is the cause with which a wait's context ends; it is no failure.
var errWaited = errors.New("its time is over")

func (m *Manager) typeAndWait(ctx, within context.Context, rec state.Record, s *session, r *ring.Ring, in chat.Input) (chat.Typed, error) {
	t := consoleOf(rec, s, r)
	typed, err := t.Answered(ctx, within, in, s.init.Ended(), func(entering func(command bool)) (tmux.Front, error) {
		return m.typeInto(ctx, rec, t, in, entering)
	})
	typed.Recording = err == nil && m.recording(rec.ID)
	return typed, err
}

// consoleOf is the terminal of a session, whose log is r.
func consoleOf(rec state.Record, s *session, r *ring.Ring) console.Terminal {
	return console.Terminal{Chat: rec.ID, Tmux: s.terminal, Log: s.log, Ring: r}
}
