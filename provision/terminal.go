package provision

import (
	"context"
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/tmux"
)

// The output of a terminal, like a screen, is the chat's word. It is kept in a directory of root's,
// which no chat sees, and chatd bounds its size.

// Log returns a piece of the log of the chat's terminal, awake or asleep, from the cursor since.
// Below 0 it is from the first byte that is stored.
func (m *Manager) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Log{}, err
	}
	return m.logs.Piece(rec.ID, since)
}

// FollowLog is [terminal.Logs.Follow]; the log ends with the chat.
func (m *Manager) FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return err
	}
	return m.logs.Follow(ctx, rec.ID, since, out)
}

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
func (m *Manager) openTerminal(
	ctx context.Context, id chat.ID, in chat.Input,
) (subject, *liveSession, *terminal.Terminal, error) {
	if err := terminal.Check(in); err != nil {
		return subject{}, nil, nil, err
	}
	rec, err := m.chats.reach(ctx, id)
	if err == nil {
		err = m.switchedOff(ctx, rec, chat.ToolTerminal, "input")
	}
	if err != nil {
		return rec, nil, nil, err
	}
	if s := m.chats.session(id); in.OnlyIf.NeedsSession() && (s == nil || !s.Init.Alive()) {
		return rec, nil, nil, fmt.Errorf("cannot type into the terminal of chat %s: want that %s, but it is asleep; nothing was typed: %w", id, in.OnlyIf, chat.ErrConflict)
	}
	st := m.starts.New()
	defer st.End()
	rec, s, err := m.use(ctx, rec, st)
	if err != nil {
		return rec, nil, nil, err
	}
	t, err := m.logs.Terminal(rec.ID, s.terminal, s.log)
	return rec, s, t, err
}

// typeInto is [terminal.Terminal.Type], audited.
func (m *Manager) typeInto(
	ctx context.Context, rec subject, t *terminal.Terminal, in chat.Input, entering func(command bool),
) (tmux.Front, error) {
	detail := terminal.Detail(in)
	if err := m.trail.Write(ctx, rec.Record, "input", "intent", detail); err != nil {
		return tmux.Front{}, err
	}
	front, err := t.Type(ctx, in, entering)
	m.chats.touch(rec.ID)
	return front, m.trail.Outcome(ctx, rec.Record, "input", detail, err)
}

// InputWait is Input that waits for in.Wait and returns the output since, as
// [terminal.Terminal.Answered] does. Where Plain is not set, package front renders it from the
// span Output. Input does not wait: it may be C-c.
func (m *Manager) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	if in.Wait == nil {
		return chat.Typed{}, chat.Invalid("cannot wait: no wait is given")
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

// Screen reads the terminal's screen. It does not wake the chat: one that is asleep has no
// screen, which is [chat.ErrWrongPhase].
func (m *Manager) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return m.ScreenWith(ctx, id, chat.ScreenSpec{})
}

// screenForms are the forms of a screen, by whether its styles are asked for.
var screenForms = map[bool]tmux.Form{false: tmux.Plain, true: tmux.Styled}

// ScreenWith is Screen with styles and history as in spec. With styles the text has any escape
// sequences that the chat's tmux sends: package front makes it safe.
func (m *Manager) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	if err := spec.Validate(); err != nil {
		return chat.Screen{}, err
	}
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Screen{}, err
	}
	s := m.chats.session(rec.ID)
	if s == nil {
		return chat.Screen{}, noScreen(id, fmt.Errorf("it is asleep: %w", chat.ErrWrongPhase))
	}
	switch m.groups.frozen(rec.ID) { // its tmux would not answer, and to look is no use
	case chat.FrozenUntilThawed:
		return chat.Screen{}, noScreen(id, heldError(id))
	case chat.FrozenUntilUsed:
		return chat.Screen{}, noScreen(id, fmt.Errorf("it is frozen until it is used: %w",
			chat.ErrWrongPhase))
	}
	sc, err := s.terminal.Screen(ctx, screenForms[spec.Styles], spec.History)
	if err != nil {
		return chat.Screen{}, err
	}
	sc.Program = strings.ToValidUTF8(sc.Program, "\uFFFD")
	return sc.Screen, nil
}

func noScreen(id chat.ID, why error) error {
	return fmt.Errorf("cannot read the screen of chat %s (chatd log --text has what it printed): %w", id, why)
}
