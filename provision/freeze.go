package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/state"
)

// A frozen chat is awake: it holds its memory and its place, and runs no code. cgroup.freeze of its
// session says that nobody used it, that of the whole chat that an operator holds it. These files
// are the only record, so a chatd that comes after a crash knows as much.

// Freeze stops an awake chat's processes where they are. An operator holds the chat so: everything
// in it stands still until [Manager.Thaw], whatever it does. Its owner lays it aside, if it is not
// at work, until its next use.
func (m *Manager) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	rec, s, unlock, err := m.lockAwake(ctx, id, "freeze")
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		err = m.hold(ctx, rec)
	} else {
		err = m.layAside(ctx, rec, s)
	}
	if err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, rec), nil
}

// lockAwake finds an awake chat for its caller, and holds its lock.
func (m *Manager) lockAwake(ctx context.Context, id chat.ID, act string) (
	rec state.Record, s *liveSession, unlock func(), err error,
) {
	if _, err = m.reach(ctx, id); err != nil {
		return rec, nil, nil, err
	}
	if unlock, err = m.locks.lock(ctx, id); err != nil {
		return rec, nil, nil, err
	}
	s = m.session(id)
	switch rec, err = m.store.Get(id); {
	case err != nil:
	case rec.Phase != chat.Ready:
		err = notReady(rec, act)
	case !s.lives():
		err = fmt.Errorf("cannot %s chat %s: it is asleep: %w", act, id, chat.ErrWrongPhase)
	}
	if err != nil {
		unlock()
	}
	return rec, s, unlock, err
}

// hold freezes all of a chat. Commands that are inside stand still with it: their times go on.
func (m *Manager) hold(ctx context.Context, rec state.Record) error {
	if m.frozen(rec.ID) == chat.FrozenUntilThawed {
		return nil
	}
	detail := map[string]string{"frozen": string(chat.FrozenUntilThawed)}
	return m.audited(ctx, rec, "freeze", detail, func() error {
		m.sayInLog(rec.ID, "an operator froze the chat")
		return m.groups.Hold(ctx, rec.ID)
	})
}

// layAside freezes a chat for its owner.
func (m *Manager) layAside(ctx context.Context, rec state.Record, s *liveSession) error {
	if m.frozen(rec.ID) != "" {
		return nil
	}
	still := func() bool { return !m.atWork(rec.ID) }
	froze, err := m.freezeSession(ctx, rec, s, "its owner asked for it", still)
	if err == nil && !froze {
		err = fmt.Errorf("cannot freeze chat %s: it is at work: a run, a file tool, a client or a "+
			"caller: %w", rec.ID, chat.ErrBusy)
	}
	return err
}

// Thaw lets a frozen chat's processes go on; one that is not frozen stays as it is. One that an
// operator froze is thawed by an operator alone.
func (m *Manager) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) {
	rec, s, unlock, err := m.lockAwake(ctx, id, "thaw")
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	if m.frozen(id) == chat.FrozenUntilThawed {
		if chat.CallerFrom(ctx).Role != chat.RoleOperator {
			return chat.Chat{}, fmt.Errorf("cannot thaw chat %s: an operator froze it: %w", id,
				chat.ErrDenied)
		}
		err = m.audited(ctx, rec, "thaw", nil, func() error {
			m.touch(rec) // or it may have been idle for so long that it sleeps immediately
			m.sayInLog(id, "an operator thawed the chat")
			return m.groups.Release(ctx, id)
		})
	}
	if err == nil {
		err = m.thaw(ctx, rec, s, "a caller asked for it")
	}
	if err != nil {
		return chat.Chat{}, err
	}
	m.touch(rec)
	if rec, err = m.store.Get(id); err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, rec), nil
}

// frozen says what the kernel shows of the chat. One that cannot be read is not frozen: whatever
// would use it reads again.
func (m *Manager) frozen(id chat.ID) chat.Frozen {
	is, err := m.groups.Frozen(id)
	if err != nil {
		m.log.Error("cannot tell whether a chat is frozen", "chat", id, "error", err)
	}
	return is
}

// letIn counts a command that enters the session until leave, and thaws the session. It counts the
// command before it looks whether the session is frozen, and freezeSession freezes before it
// counts: so one of the two sees the other, and no command meets a session that chatd has frozen.
func (m *Manager) letIn(ctx context.Context, rec state.Record, s *liveSession) (leave func(), err error) {
	s.inside.Add(1)
	leave = func() { s.inside.Add(-1) }
	if err := m.thaw(ctx, rec, s, "a command enters it"); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// thaw lets a session go on that nobody used. Of simultaneous callers one does so, and the others
// wait for that. It is [chat.ErrBusy] for a chat that an operator holds.
func (m *Manager) thaw(ctx context.Context, rec state.Record, s *liveSession, why string) error {
	if is, err := m.groups.Frozen(rec.ID); err != nil || is == "" {
		return err
	}
	s.freezing.Lock()
	defer s.freezing.Unlock()
	switch is, err := m.groups.Frozen(rec.ID); {
	case err != nil || is == "":
		return err
	case is == chat.FrozenUntilThawed:
		return heldError(rec.ID)
	}
	err := m.groups.Thaw(rec.ID)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // its session ends
	}
	if aerr := m.auditEnd(ctx, rec, "thaw", map[string]string{"why": why}, err); aerr != nil {
		m.log.Error("cannot audit a thaw", "chat", rec.ID, "error", aerr)
	}
	return err
}

func heldError(id chat.ID) error {
	return fmt.Errorf("cannot use chat %s: it is frozen until an operator thaws it (chatd thaw): "+
		"%w", id, chat.ErrBusy)
}

// freezeSession freezes the processes of a session, unless a command is inside or still is false.
// It freezes before it looks for commands: see letIn. If the freeze cannot be audited it thaws again.
func (m *Manager) freezeSession(
	ctx context.Context, rec state.Record, s *liveSession, why string, still func() bool,
) (froze bool, err error) {
	s.freezing.Lock()
	defer s.freezing.Unlock()
	if err := m.groups.Freeze(rec.ID); err != nil {
		return false, err
	}
	if s.inside.Load() > 0 || !still() {
		return false, m.groups.Thaw(rec.ID)
	}
	err = m.audit(ctx, rec, "freeze", "done", map[string]string{
		"frozen": string(chat.FrozenUntilUsed), "why": why,
	})
	if err != nil {
		return false, errors.Join(err, m.groups.Thaw(rec.ID))
	}
	m.log.Debug("froze a chat", "chat", rec.ID, "why", why)
	return true, nil
}

// freezeIdle is freezeSession for a chat that nobody used for freeze_after of its profile. It
// leaves one alone that another caller acts on.
func (m *Manager) freezeIdle(c idle.Chat, why string) (bool, error) {
	unlock, free := m.locks.tryLock(c.ID)
	if !free {
		return false, nil
	}
	defer unlock()
	s := m.session(c.ID)
	if !s.lives() {
		return false, nil
	}
	rec, err := m.store.Get(c.ID)
	if err != nil || rec.Phase != chat.Ready {
		return false, nil
	}
	return m.freezeSession(context.Background(), rec, s, why, func() bool {
		now, err := m.store.Get(c.ID)
		return err == nil && !now.UsedAt.After(c.Used) && !m.atWork(c.ID)
	})
}
