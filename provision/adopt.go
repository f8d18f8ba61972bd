package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

func (m *Manager) writeSessionFile(s *session) error {
	b, err := json.Marshal(sessionFile{s.init.Process, s.report, s.invocation, s.plan, s.exposed, s.masked.Load()})
	if err != nil {
		return fmt.Errorf("cannot note session %s: %w", s.id, err)
	}
	if err := trees.ReplaceFile(filepath.Join(m.sessionDir(s.id), "session.json"), b, 0o600); err != nil {
		return fmt.Errorf("cannot note session %s: %w", s.id, err)
	}
	return nil
}

// adopt takes over a session that an earlier chatd started. It requires the same boot and start
// time, the chat's uid and cgroup, and the same invocation of the unit.
func (m *Manager) adopt(rec state.Record) error {
	b, err := os.ReadFile(filepath.Join(m.sessionDir(rec.ID), "session.json"))
	if err != nil {
		return fmt.Errorf("cannot adopt session %s: %w", rec.ID, err)
	}
	var f sessionFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("cannot adopt session %s: %w", rec.ID, err)
	}
	if f.Init.Boot != m.boot || f.Init.Start == 0 {
		return fmt.Errorf("cannot adopt session %s: it is of another boot", rec.ID)
	}
	l, err := sys.HoldProcess(f.Init)
	if err != nil {
		return err
	}
	s := &session{id: rec.ID, owner: rec.Owner, uid: rec.UID, init: l, report: f.Report, invocation: f.Invocation, plan: f.Plan, exposed: f.Exposed, adopted: true}
	if err := errors.Join(m.checkInit(s), m.checkInvocation(s)); err != nil {
		return errors.Join(err, l.Close())
	}
	s.terminal = m.terminal(rec, s)
	s.masked.Store(f.Masked)
	// A chatd that crashed while it started the session may have left the quota lifted.
	if err := m.groups.Limit(rec.ID, m.profile(rec).Limits); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := m.keepRules(context.Background(), rec, l); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := m.forgetMasks(rec, s); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := m.writeShimPolicy(rec); err != nil { // the config may have changed since
		m.setFinding("shims of chat "+string(rec.ID), err)
	}
	if s.met.seen, err = m.hits(rec.ID); err != nil {
		return errors.Join(err, l.Close())
	}
	m.keepSession(s)
	return nil
}

func (m *Manager) checkInit(s *session) error {
	uid, err := sys.UIDOf(s.init.PID)
	if err != nil || uid != s.uid {
		return fmt.Errorf("cannot adopt session %s: process %d is of uid %d, want %d: %w", s.id, s.init.PID, uid, s.uid, errors.Join(err, chat.ErrWrongPhase))
	}
	members, err := m.groups.Members(s.id)
	if err != nil {
		return err
	}
	for _, pid := range members {
		if pid == s.init.PID {
			return nil
		}
	}
	return fmt.Errorf("cannot adopt session %s: process %d is not in its cgroup", s.id, s.init.PID)
}

// checkInvocation refuses a unit that somebody else started under the same name.
func (m *Manager) checkInvocation(s *session) error {
	now, err := m.groups.Invocation(s.id)
	if err != nil {
		return err
	}
	if now != s.invocation {
		return fmt.Errorf("cannot adopt session %s: its unit was started again: invocation %s, want %s: %w", s.id, now, s.invocation, chat.ErrWrongPhase)
	}
	return nil
}

// watch waits for the session's end and cleans up after it: when the shell
// ends, the chat is asleep.
func (m *Manager) watch(s *session) {
	err := s.init.Wait()
	s.deafen()
	if err != nil {
		return // closed: another goroutine ends the session or leaves it running
	}
	ctx := context.Background()
	unlock, err := m.locks.lock(ctx, s.id)
	if err != nil {
		return
	}
	defer unlock()
	m.mu.Lock()
	mine := m.sessions[s.id] == s
	m.mu.Unlock()
	rec, err := m.store.Get(s.id)
	if !mine || err != nil {
		return
	}
	why := "the session ended by itself"
	if ended := s.endedFor.Load(); ended != nil {
		why = *ended
	}
	m.sayInLog(s.id, why)
	why = strings.Join(append(m.lookAtLimits(s), why), "; ")
	m.log.Info("a session ended", "chat", s.id, "why", why)
	if err := m.audit(ctx, rec, "sleep", "done", map[string]string{"why": why}); err != nil {
		m.log.Error("cannot audit the end of a session", "chat", s.id, "error", err)
	}
	if err := m.backwards(ctx, "sleep", awakeSteps(), rec); err != nil {
		m.setFinding("session "+string(s.id), err)
	}
}
