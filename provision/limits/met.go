package limits

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// The kernel enforces limits, and the process that meets one learns little: a shell prints
// "Killed", and an agent that cannot fork prints anything. So chatd reads the counters of every
// session and reports in the terminal's log; a run's answer reports the limits that it met.

// Look reports the limits that a session met since the last call, and returns the words.
func (w *Watch) Look(rec state.Record, l chat.Limits, s *State) []string {
	now, err := Hits(w.Groups, rec.ID)
	if err != nil {
		w.Log.Debug("cannot look at the limits of a chat", "chat", rec.ID, "error", err)
		return nil
	}
	s.metering.Lock()
	defer s.metering.Unlock()
	since, report := s.meter.Take(now, time.Now())
	if report != (chat.LimitHits{}) {
		why := strings.Join(report.Words("the terminal", l), "; ")
		w.Log.Warn("a chat met its limits", "chat", rec.ID, "why", why)
		w.Trail.Note(context.Background(), rec, "limit", map[string]string{"why": why}, nil)
	}
	words := since.Words("the terminal", l)
	for _, what := range words {
		w.Logs.Say(rec.ID, what)
	}
	return words
}

// Hits returns the counters of a chat; they are zero for one without a cgroup.
func Hits(g Groups, id chat.ID) (chat.LimitHits, error) {
	h, err := g.Hits(id)
	if errors.Is(err, chat.ErrNotFound) {
		return chat.LimitHits{}, nil
	}
	return h, err
}

// OutOfMemory is the end of a chat's tool that the kernel ended for memory_max; empty if it did not.
func OutOfMemory(l chat.Limits, kills uint64) string {
	words := chat.LimitHits{OOMKills: kills}.Words("the call", l)
	if len(words) == 0 {
		return ""
	}
	return ": " + strings.Join(words, "")
}
