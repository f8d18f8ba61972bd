package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// The kernel enforces limits, and the process that meets one learns little: a shell prints
// "Killed", and an agent that cannot fork prints anything. So chatd reads the counters of every
// session and reports in the terminal's log; a run's answer reports the limits that it met.

const (
	// limitLook is how often a session's counters are read.
	limitLook = 2 * time.Second
	// limitReport is the least interval between two lines of one chat in each of the two logs.
	limitReport = time.Minute
)

// limitsMet records the limits that a session met. The zero value means none.
type limitsMet struct {
	mu       sync.Mutex
	seen     chat.LimitHits
	unsaid   chat.LimitHits
	reported time.Time
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

func (m *Manager) allSessions() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}

// lookAtLimits reports the limits that a session met since the last call, and returns the words.
func (m *Manager) lookAtLimits(s *session) []string {
	rec, err := m.store.Get(s.id)
	if err != nil {
		return nil // reaped meanwhile
	}
	now, err := m.hits(s.id)
	if err != nil {
		m.log.Debug("cannot look at the limits of a chat", "chat", s.id, "error", err)
		return nil
	}
	s.met.mu.Lock()
	defer s.met.mu.Unlock()
	since := now.Since(s.met.seen)
	s.met.seen = now
	s.met.unsaid.OOMKills += since.OOMKills
	s.met.unsaid.PidsRefused += since.PidsRefused
	m.reportLimits(rec, &s.met)
	words := since.Words("the terminal", m.profile(rec).Limits)
	for _, w := range words {
		m.sayInLog(s.id, w)
	}
	return words
}

// reportLimits writes unreported hits into chatd's log and the audit log.
func (m *Manager) reportLimits(rec state.Record, met *limitsMet) {
	if met.unsaid == (chat.LimitHits{}) || time.Since(met.reported) < limitReport {
		return
	}
	words := strings.Join(met.unsaid.Words("the terminal", m.profile(rec).Limits), "; ")
	met.unsaid, met.reported = chat.LimitHits{}, time.Now()
	m.log.Warn("a chat met its limits", "chat", rec.ID, "why", words)
	if err := m.auditOutcome(context.Background(), rec, "limit", map[string]string{"why": words}, nil); err != nil {
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

// sayInLog appends a line of chatd's to the log of a chat's terminal. The screen, which is the
// chat's, does not show it.
func (m *Manager) sayInLog(id chat.ID, words string) {
	r, done, err := m.logs.Open(id)
	if err == nil {
		defer done()
		err = r.Append(fmt.Appendf(nil, "\r\n[chatd: %s]\r\n", words))
	}
	if err != nil { // a full disk, or the chat was reaped
		m.log.Debug("cannot say in the log of a terminal", "chat", id, "what", words, "error", err)
	}
}
