package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/state"
)

// Wake starts the chat's session, unless it has one, and returns when its shell is at its
// prompt.
func (m *Manager) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	rec, _, err = m.wakeLocked(ctx, rec.ID)
	if err != nil {
		return chat.Chat{}, err
	}
	m.touch(rec)
	return m.show(ctx, rec), nil
}

// wakeLocked wakes a ready chat; the caller holds its lock.
func (m *Manager) wakeLocked(ctx context.Context, id chat.ID) (state.Record, *session, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return rec, nil, err
	}
	if rec.Phase != chat.Ready {
		return rec, nil, notReady(rec, "wake")
	}
	if s := m.session(id); s != nil && s.init.Alive() {
		return rec, s, nil
	}
	if _, ok := m.opt.Profiles[rec.Profile]; !ok {
		return rec, nil, fmt.Errorf("cannot wake chat %s: its profile %s is not configured any more: %w", id, rec.Profile, chat.ErrWrongPhase)
	}
	if err := m.mayBegin(ctx); err != nil {
		return rec, nil, err
	}
	if err := m.admitSession(ctx, rec); err != nil {
		return rec, nil, m.auditSpent(ctx, "wake", err)
	}
	defer m.sessionAdmitted(rec)
	return m.startLocked(ctx, rec)
}

// notReady refuses to act on a chat that is not ready. A chat in creation becomes ready without
// this caller: its creator or reconcile finishes it.
func notReady(rec state.Record, act string) error {
	if rec.Phase == chat.Creating {
		return fmt.Errorf("cannot %s chat %s: it is still being created; ask again in a moment: %w", act, rec.ID, chat.ErrBusy)
	}
	return fmt.Errorf("cannot %s chat %s: it is %s: %w", act, rec.ID, rec.Phase, chat.ErrWrongPhase)
}

func (m *Manager) startLocked(ctx context.Context, rec state.Record) (state.Record, *session, error) {
	leave, err := m.acquireStart(ctx, rec, "wake")
	if err != nil {
		return rec, nil, err
	}
	defer leave()
	// First remove the remains of an ended session: nothing is ever started in a cgroup that
	// was killed.
	if err := m.backwards(ctx, "clear", awakeSteps(), rec); err != nil {
		return rec, nil, err
	}
	if err := m.audit(ctx, rec, "wake", "intent", nil); err != nil {
		return rec, nil, err
	}
	m.freshPrograms()
	err = m.forwards(ctx, "wake", awakeSteps(), rec)
	s := m.session(rec.ID)
	if err := errors.Join(err, m.auditOutcome(ctx, rec, "wake", seen(s), err)); err != nil {
		return rec, nil, err
	}
	if s == nil {
		return rec, nil, fmt.Errorf("cannot wake chat %s: its session ended at once: %w", rec.ID, chat.ErrWrongPhase)
	}
	return rec, s, nil
}

// admitSession bounds the number of chats that are awake or waking, in total and of one owner.
func (m *Manager) admitSession(ctx context.Context, rec state.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.sessions)
	for _, waking := range m.starting {
		n += waking
	}
	if m.opt.MaxAwake > 0 && n >= m.opt.MaxAwake {
		return fmt.Errorf("cannot wake another chat: %d chats are awake, of all owners, which is max_awake: put one to sleep: %w", n, chat.ErrBusy)
	}
	if err := m.bounded(ctx, quota.Awake, rec.Owner, m.awakeOf(rec.Owner), 1); err != nil {
		return err
	}
	m.starting[rec.Owner]++
	return nil
}

func (m *Manager) sessionAdmitted(rec state.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting[rec.Owner]--; m.starting[rec.Owner] == 0 {
		delete(m.starting, rec.Owner)
	}
}

// Sleep ends the chat's session and everything in it; home and account stay.
func (m *Manager) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	if _, err := m.reach(ctx, id); err != nil {
		return chat.Chat{}, err
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if err != nil {
		return chat.Chat{}, err
	}
	if rec.Phase != chat.Ready {
		return chat.Chat{}, notReady(rec, "put to sleep")
	}
	if m.session(id) == nil {
		return m.show(ctx, rec), nil
	}
	if err := m.audit(ctx, rec, "sleep", "intent", nil); err != nil {
		return chat.Chat{}, err
	}
	m.endRunsBecause(id, chat.EndedBySleep)
	m.sayInLog(id, "the chat was put to sleep")
	err = m.backwards(context.WithoutCancel(ctx), "sleep", awakeSteps(), rec)
	if err := errors.Join(err, m.auditOutcome(ctx, rec, "sleep", nil, err)); err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, rec), nil
}

// session is the chat's session, nil while it is asleep.
func (m *Manager) session(id chat.ID) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[id]
}
