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

// A limit acts in the kernel, and what it hits learns little: a shell says "Killed", an agent
// that is refused a process says anything. So chatd looks at the counters of every session and
// says what it sees in the terminal's log; a run's own answer says what met the run.

const (
	// limitLook is how often a session's counters are read.
	limitLook = 2 * time.Second
	// limitReport bounds how often one chat makes a line in chatd's log and the audit log.
	limitReport = time.Minute
)

// limitsMet is what is known of a session's limits. The zero value is a session with none met.
type limitsMet struct {
	mu       sync.Mutex
	seen     chat.LimitHits
	unsaid   chat.LimitHits
	reported time.Time
}

// watchLimits looks at every session until ctx ends.
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

// lookAtLimits says which limits a session met since the last look, and returns the words.
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

// reportLimits writes what is unsaid into chatd's log and the audit log.
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

// hits are the counters of a chat; none of one that has no cgroup.
func (m *Manager) hits(id chat.ID) (chat.LimitHits, error) {
	h, err := m.groups.Hits(id)
	if errors.Is(err, chat.ErrNotFound) {
		return chat.LimitHits{}, nil
	}
	return h, err
}

// sayInLog puts a line of chatd's into the log of a chat's terminal. It is not on the
// screen, which is the chat's.
func (m *Manager) sayInLog(id chat.ID, words string) {
	r, done, err := m.openLog(id)
	if err == nil {
		defer done()
		err = r.Append(fmt.Appendf(nil, "\r\n[chatd: %s]\r\n", words))
	}
	if err != nil { // a full disk, or the chat was reaped
		m.log.Debug("cannot say in the log of a terminal", "chat", id, "what", words, "error", err)
	}
}
