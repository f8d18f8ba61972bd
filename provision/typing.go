package provision

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/console"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// Input types text or presses keys in the chat's terminal, and wakes the chat
// if it is asleep. Inputs at the same time are typed one after the other.
func (m *Manager) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	rec, _, t, err := m.openTerminal(ctx, id, in)
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = m.typeInto(ctx, rec, t, in, func(bool) {})
	return err
}

// openTerminal checks an input and wakes its chat. The caller closes the terminal.
func (m *Manager) openTerminal(ctx context.Context, id chat.ID, in chat.Input) (state.Record, *liveSession, *console.Terminal, error) {
	if err := console.Check(in); err != nil {
		return state.Record{}, nil, nil, err
	}
	rec, err := m.reach(ctx, id)
	if err == nil {
		err = m.switchedOff(ctx, rec, chat.ToolTerminal, "input")
	}
	if err != nil {
		return rec, nil, nil, err
	}
	if s := m.session(id); in.OnlyIf.NeedsSession() && (s == nil || !s.Init.Alive()) {
		return rec, nil, nil, fmt.Errorf("cannot type into the terminal of chat %s: want that %s, but it is asleep; nothing was typed: %w", id, in.OnlyIf, chat.ErrConflict)
	}
	rec, s, err := m.use(ctx, id)
	if err != nil {
		return rec, nil, nil, err
	}
	t, err := m.logs.Terminal(rec.ID, s.terminal, s.log)
	return rec, s, t, err
}

// typeInto is [console.Terminal.Type], audited.
func (m *Manager) typeInto(ctx context.Context, rec state.Record, t *console.Terminal, in chat.Input, entering func(command bool)) (tmux.Front, error) {
	detail := console.Detail(in)
	if err := m.audit(ctx, rec, "input", "intent", detail); err != nil {
		return tmux.Front{}, err
	}
	front, err := t.Type(ctx, in, entering)
	m.touch(rec)
	return front, m.auditOutcome(ctx, rec, "input", detail, err)
}

// InputWait is Input that waits for in.Wait and returns the output since, as
// [console.Terminal.Answered] does. Where Plain is not set, package front renders it from the
// span Output. Input does not wait: it may be C-c.
func (m *Manager) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	if in.Wait == nil {
		return chat.Typed{}, fmt.Errorf("cannot wait: no wait is given: %w", chat.ErrInvalid)
	}
	rec, s, t, err := m.openTerminal(ctx, id, in)
	if err != nil {
		return chat.Typed{}, err
	}
	defer t.Close()
	return t.Answered(ctx, in, s.Init.Ended(), func(entering func(command bool)) (tmux.Front, error) {
		return m.typeInto(ctx, rec, t, in, entering)
	})
}
