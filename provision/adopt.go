package provision

import (
	"context"
	"errors"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// adopt takes over a session that an earlier chatd started; see [session.Starter.Adopt].
func (m *Manager) adopt(rec state.Record) error {
	in, err := m.starter.Adopt(m.sessionDir(rec.ID, rec.UID))
	if err != nil {
		return err
	}
	s := &liveSession{Session: in, owner: rec.Owner, adopted: true}
	s.terminal = m.terminal(rec, s)
	if err := m.bringUpToDate(rec, s); err != nil {
		return errors.Join(err, in.Init.Close())
	}
	m.keepSession(s)
	return nil
}

// bringUpToDate gives an adopted session what the config says by now.
func (m *Manager) bringUpToDate(rec state.Record, s *liveSession) error {
	// A chatd that crashed while it started the session may have left the quota lifted.
	if err := m.applyLimits(rec, s, false); err != nil && !errors.Is(err, chat.ErrBusy) {
		return err
	}
	if err := m.policy.Apply(context.Background(), m.chatOf(rec), s.Init); err != nil {
		return err
	}
	if err := m.policy.ForgetMasks(m.chatOf(rec), s.Session, m.sessionDir(rec.ID, rec.UID)); err != nil {
		return err
	}
	if err := m.adoptNetwork(rec, s); err != nil {
		return err
	}
	if err := m.sessionDir(rec.ID, rec.UID).WritePolicy(m.shimPolicy(rec)); err != nil {
		m.setFinding("shims of chat "+string(rec.ID), err)
	}
	counters, err := m.hits(rec.ID)
	if err != nil {
		return err
	}
	s.meter.Begin(counters)
	return nil
}

// watch waits for the session's end and cleans up after it: when the shell
// ends, the chat is asleep.
func (m *Manager) watch(s *liveSession) {
	err := s.Init.Wait()
	s.stopLog()
	if err != nil {
		return // closed: another goroutine ends the session or leaves it running
	}
	ctx := context.Background()
	unlock, err := m.locks.lock(ctx, s.Chat)
	if err != nil {
		return
	}
	defer unlock()
	m.mu.Lock()
	mine := m.sessions[s.Chat] == s
	m.mu.Unlock()
	rec, err := m.store.Get(s.Chat)
	if !mine || err != nil {
		return
	}
	why := "the session ended by itself"
	if ended := s.endedFor.Load(); ended != nil {
		why = *ended
	}
	m.sayInLog(s.Chat, why)
	why = strings.Join(append(m.lookAtLimits(s), why), "; ")
	m.log.Info("a session ended", "chat", s.Chat, "why", why)
	if err := m.audit(ctx, rec, "sleep", "done", map[string]string{"why": why}); err != nil {
		m.log.Error("cannot audit the end of a session", "chat", s.Chat, "error", err)
	}
	if err := m.backwards(ctx, "sleep", awakeSteps(), rec); err != nil {
		m.setFinding("session "+string(s.Chat), err)
	}
}
