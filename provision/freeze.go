package provision

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/idle"
)

// A frozen chat is awake: it holds its memory and its place, and runs no code. cgroup.freeze of its
// session says that nobody used it, that of the whole chat that an operator holds it. These files
// are the only record, so a chatd that comes after a crash knows as much.

// Freeze stops an awake chat's processes where they are. An operator holds the chat so: everything
// in it stands still until [Manager.Thaw], whatever it does. Its owner lays it aside, if it is not
// at work, until its next use.
func (m *Manager) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.inAwake(ctx, id, "freeze", func(c subject, s *liveSession) error {
		if chat.CallerFrom(ctx).Role == chat.RoleOperator {
			return m.freezeWhole(ctx, c)
		}
		return m.layAside(ctx, c, s)
	})
}

// inAwake finds an awake chat for its caller, acts on it under its lock, and shows it.
func (m *Manager) inAwake(
	ctx context.Context, id chat.ID, verb string, act func(subject, *liveSession) error,
) (chat.Chat, error) {
	c, unlock, err := m.chats.lockReady(ctx, id, verb)
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	s := m.chats.session(id)
	if !s.lives() {
		return chat.Chat{}, fmt.Errorf("cannot %s chat %s: it is asleep: %w", verb, id, chat.ErrWrongPhase)
	}
	if err := act(c, s); err != nil {
		return chat.Chat{}, err
	}
	c, err = m.chats.get(id)
	return m.shown(ctx, c, err)
}

// freezeWhole freezes all of a chat. Commands that are inside stand still with it: their times go on.
func (m *Manager) freezeWhole(ctx context.Context, rec subject) error {
	if m.groups.frozen(rec.ID) == chat.FrozenUntilThawed {
		return nil
	}
	detail := map[string]string{"frozen": string(chat.FrozenUntilThawed)}
	return m.trail.Around(ctx, rec.Record, "freeze", detail, func() error {
		m.logs.Say(rec.ID, "an operator froze the chat")
		return m.groups.FreezeAll(ctx, rec.ID)
	})
}

// layAside freezes a chat for its owner.
func (m *Manager) layAside(ctx context.Context, rec subject, s *liveSession) error {
	if m.groups.frozen(rec.ID) != "" {
		return nil
	}
	still := func() bool { return !m.atWork(rec.ID) }
	froze, err := m.freeze(ctx, rec, s, "its owner asked for it", still)
	if err == nil && !froze {
		err = fmt.Errorf("cannot freeze chat %s: it is at work: a run, a file tool, a client or a "+
			"caller: %w", rec.ID, chat.ErrBusy)
	}
	return err
}

// Thaw lets a frozen chat's processes go on; one that is not frozen stays as it is. One that an
// operator froze is thawed by an operator alone.
func (m *Manager) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.inAwake(ctx, id, "thaw", func(c subject, s *liveSession) error {
		if err := m.release(ctx, c); err != nil {
			return err
		}
		err := m.thaw(ctx, c, s, "a caller asked for it")
		if err == nil {
			m.chats.touch(id)
		}
		return err
	})
}

// release is hold's opposite, for an operator.
func (m *Manager) release(ctx context.Context, c subject) error {
	if m.groups.frozen(c.ID) != chat.FrozenUntilThawed {
		return nil
	}
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return fmt.Errorf("cannot thaw chat %s: an operator froze it: %w", c.ID, chat.ErrDenied)
	}
	return m.trail.Around(ctx, c.Record, "thaw", nil, func() error {
		m.chats.touch(c.ID) // or it may have been idle for so long that it sleeps immediately
		m.logs.Say(c.ID, "an operator thawed the chat")
		return m.groups.ThawAll(ctx, c.ID)
	})
}

// freezeIdle is [sessions.freeze] for a chat that nobody used for freeze_after of its profile. It
// leaves one alone that another caller acts on.
func (m *Manager) freezeIdle(c idle.Chat, why string) (bool, error) {
	rec, unlock, got := m.chats.tryReady(c.ID)
	if !got {
		return false, nil
	}
	defer unlock()
	s := m.chats.session(c.ID)
	if !s.lives() {
		return false, nil
	}
	return m.freeze(context.Background(), rec, s, why,
		func() bool { return !m.chats.usedSince(c) && !m.atWork(c.ID) })
}
