package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/shares"
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
	rec, s, err := m.wakeLocked(ctx, rec.ID)
	if err == nil {
		m.touch(rec)
		err = m.thaw(ctx, rec, s, "a caller asked for it")
	}
	if err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, rec), nil
}

// wakeLocked wakes a ready chat; the caller holds its lock.
func (m *Manager) wakeLocked(ctx context.Context, id chat.ID) (state.Record, *liveSession, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return rec, nil, err
	}
	if rec.Phase != chat.Ready {
		return rec, nil, notReady(rec, "wake")
	}
	if s := m.session(id); s != nil && s.Init.Alive() {
		return rec, s, nil
	}
	if _, ok := m.opt.Profiles[rec.Profile]; !ok {
		return rec, nil, fmt.Errorf("cannot wake chat %s: its profile %s is not configured any more: %w", id, rec.Profile, chat.ErrWrongPhase)
	}
	if err := m.mayBegin(ctx); err != nil {
		return rec, nil, err
	}
	done, err := m.shares.Wake(ctx, rec.ID, m.place(rec))
	if err != nil {
		return rec, nil, err
	}
	defer done()
	return m.startLocked(ctx, rec)
}

// startHold is how long one start may occupy its slot. A start that takes longer is waiting for
// the chat's own ~/.bashrc, or for an overloaded host.
const startHold = 3 * time.Second

// acquireStart waits for a slot to create or wake a chat; leave frees the slot, and is idempotent.
// A start takes most of a core, without a CPU quota; hundreds would starve the chats that are
// awake.
func (m *Manager) acquireStart(ctx context.Context, rec state.Record, verb string) (leave func(), err error) {
	leave, err = m.starts.Enter(ctx, rec.Owner, verb)
	if err != nil {
		return nil, fmt.Errorf("cannot %s chat %s: others are being created and woken: %w: %w",
			verb, rec.ID, err, chat.ErrBusy)
	}
	return leave, nil
}

// notReady refuses to act on a chat that is not ready. A chat in creation becomes ready without
// this caller: its creator or reconcile finishes it.
func notReady(rec state.Record, act string) error {
	if rec.Phase == chat.Creating {
		return fmt.Errorf("cannot %s chat %s: it is still being created; ask again in a moment: %w", act, rec.ID, chat.ErrBusy)
	}
	return fmt.Errorf("cannot %s chat %s: it is %s: %w", act, rec.ID, rec.Phase, chat.ErrWrongPhase)
}

func (m *Manager) startLocked(ctx context.Context, rec state.Record) (state.Record, *liveSession, error) {
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
	if err := m.createDisk(ctx, rec); err != nil {
		return rec, nil, err
	}
	m.freshPrograms()
	err = m.forwards(ctx, "wake", awakeSteps(), rec)
	s := m.session(rec.ID)
	m.sayCleanUp(rec)
	if err := m.auditOutcome(ctx, rec, "wake", seen(s), err); err != nil {
		return rec, nil, err
	}
	if s == nil {
		return rec, nil, fmt.Errorf("cannot wake chat %s: its session ended immediately: %w", rec.ID, chat.ErrWrongPhase)
	}
	return rec, s, nil
}

// place is what the chat holds while it is awake.
func (m *Manager) place(rec state.Record) shares.Place {
	return shares.Place{Owner: rec.Owner, Memory: m.profile(rec).Limits.MemoryMax}
}

// places returns what each chat holds that has a session.
func (m *Manager) places() map[chat.ID]shares.Place {
	awake := map[chat.ID]shares.Place{}
	for _, s := range m.allSessions() {
		awake[s.Chat] = shares.Place{Owner: s.owner}
		if rec, err := m.store.Get(s.Chat); err == nil {
			awake[s.Chat] = m.place(rec)
		}
	}
	return awake
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
	if m.session(id) == nil && !m.hasSessionTraces(id) {
		return m.show(ctx, rec), nil
	}
	if err := m.sleepLocked(ctx, rec, ""); err != nil {
		return chat.Chat{}, err
	}
	return m.show(ctx, rec), nil
}

// sleepLocked puts an awake chat to sleep; the caller holds its lock. why is empty for a request.
func (m *Manager) sleepLocked(ctx context.Context, rec state.Record, why string) error {
	words, detail := "the chat was put to sleep", map[string]string(nil)
	if why != "" {
		words, detail = words+": "+why, map[string]string{"why": why}
	}
	return m.audited(ctx, rec, "sleep", detail, func() error {
		m.runs.Because(rec.ID, chat.EndedBySleep)
		m.keepTerminal(ctx, rec.ID)
		m.sayInLog(rec.ID, words)
		return m.backwards(context.WithoutCancel(ctx), "sleep", awakeSteps(), rec)
	})
}

// session is the chat's session, nil while it is asleep.
func (m *Manager) session(id chat.ID) *liveSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[id]
}

// keepTimeout bounds how long a sleep waits for the chat to write down what its terminal shows.
const keepTimeout = time.Second

// keepTerminal lets the session write down where its shell is and what its terminal shows, for the
// next one. What it does not write within keepTimeout is lost.
func (m *Manager) keepTerminal(ctx context.Context, id chat.ID) {
	s := m.session(id)
	if s == nil || !s.Init.Alive() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if err := s.terminal.Keep(ctx, plan.KeptTerminal); err != nil {
		m.log.Debug("a terminal is not kept over a sleep", "chat", id, "why", err)
	}
}
