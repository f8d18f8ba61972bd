package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/sockets"
	"github.com/chatd/chatd/state"
)

// The kernel enforces limits, and the process that meets one learns little: a shell prints
// "Killed", and an agent that cannot fork prints anything. So chatd reads the counters of every
// session and reports in the terminal's log; a run's answer reports the limits that it met. Package
// sockets counts what no cgroup counts.

// limitLook is how often a session's counters are read.
const limitLook = 2 * time.Second

// watchSockets ends sessions whose sockets and record locks hold too much, until ctx ends.
func (m *Manager) watchSockets(ctx context.Context) {
	err := sockets.Watch(ctx, sockets.Options{
		Awake: m.socketSessions, Members: m.groups.Members, Log: m.log,
		End: func(s sockets.Session, why string) { m.endFor(ctx, s, why) },
	})
	if err != nil {
		m.setFinding("what sockets hold", err)
	}
}

// socketSessions are the current sessions, as package sockets knows them.
func (m *Manager) socketSessions() []sockets.Session {
	all := m.allSessions()
	out := make([]sockets.Session, len(all))
	for i, s := range all {
		out[i] = sockets.Session{Chat: s.Chat, UID: s.UID, Init: s.Init}
		if rec, err := m.store.Get(s.Chat); err == nil { // else it is being reaped
			out[i].MemoryMax = m.profile(rec).Limits.MemoryMax
		}
	}
	return out
}

// endFor ends a session for a reason, which the audit of its end names. The caller does not
// wait for the end.
func (m *Manager) endFor(ctx context.Context, of sockets.Session, why string) {
	s := m.session(of.Chat)
	if s == nil || s.Init != of.Init || !s.endedFor.CompareAndSwap(nil, &why) {
		return
	}
	s.ending.Store(true)
	m.log.Warn("ending a session", "chat", s.Chat, "why", why)
	m.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.StartTimeout)
		defer cancel()
		rec, err := m.store.Get(s.Chat)
		if err == nil {
			err = m.starter.Kill(ctx, rec.ID, rec.UID)
		}
		if err != nil && !errors.Is(err, chat.ErrNotFound) { // reaped meanwhile
			m.setFinding("session "+string(s.Chat), err)
		}
	})
}

// watchLimits reads the counters of every session until ctx ends.
func (m *Manager) watchLimits(ctx context.Context) {
	tick := time.NewTicker(limitLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range m.allSessions() {
			m.lookAtLimits(s)
		}
	}
}

func (m *Manager) allSessions() []*liveSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.sessions))
}

// lookAtLimits reports the limits that a session met since the last call, and returns the words.
func (m *Manager) lookAtLimits(s *liveSession) []string {
	rec, err := m.store.Get(s.Chat)
	if err != nil {
		return nil // reaped meanwhile
	}
	now, err := m.hits(s.Chat)
	if err != nil {
		m.log.Debug("cannot look at the limits of a chat", "chat", s.Chat, "error", err)
		return nil
	}
	s.meterMu.Lock()
	defer s.meterMu.Unlock()
	since, report := s.meter.Take(now, time.Now())
	if report != (chat.LimitHits{}) {
		m.reportLimits(rec, report)
	}
	words := since.Words("the terminal", m.profile(rec).Limits)
	for _, w := range words {
		m.sayInLog(s.Chat, w)
	}
	return words
}

// reportLimits writes hits into chatd's log and the audit log.
func (m *Manager) reportLimits(rec state.Record, hits chat.LimitHits) {
	words := strings.Join(hits.Words("the terminal", m.profile(rec).Limits), "; ")
	m.log.Warn("a chat met its limits", "chat", rec.ID, "why", words)
	if err := m.auditEnd(context.Background(), rec, "limit", map[string]string{"why": words}, nil); err != nil {
		m.log.Error("cannot audit what a limit did", "chat", rec.ID, "error", err)
	}
}

// hits returns the counters of a chat; they are zero for one without a cgroup.
func (m *Manager) hits(id chat.ID) (chat.LimitHits, error) {
	h, err := m.groups.Hits(id)
	if errors.Is(err, chat.ErrNotFound) {
		return chat.LimitHits{}, nil
	}
	return h, err
}

// outOfMemory is the end of a chat's tool that the kernel ended for memory_max; empty if it did
// not.
func (m *Manager) outOfMemory(rec state.Record, kills uint64) string {
	words := chat.LimitHits{OOMKills: kills}.Words("the call", m.profile(rec).Limits)
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s", strings.Join(words, ""))
}
