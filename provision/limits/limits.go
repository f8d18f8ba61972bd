package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/state"
)

// Groups are the cgroups of sessions; see package cgroup.
type Groups interface {
	Limit(chat.ID, chat.Limits) error
	Drift(chat.ID, chat.Limits) ([]string, error)
	Unreclaimable(chat.ID) (uint64, error)
	Hits(chat.ID) (chat.LimitHits, error)
}

// Watch gives sessions their limits, and reports which they met.
type Watch struct {
	Groups Groups
	Trail  *audit.Trail
	Logs   *terminal.Logs
	Log    *slog.Logger
}

// About is the subject of the finding about limits that a session does not have.
func About(id chat.ID) string { return "limits of chat " + string(id) }

// Apply gives a session its limits, and keeps in mind which it does not have. The caller holds the
// chat's lock. Unless forced, memory_max goes no lower than what the chat holds, or cgroup v2 would
// end processes: it follows minute by minute.
func (w *Watch) Apply(id chat.ID, want chat.Limits, s *State, force bool) error {
	l := want
	if held, err := w.Groups.Unreclaimable(id); err == nil && !force {
		l.MemoryMax = max(want.MemoryMax, held)
	}
	err := w.Groups.Limit(id, l)
	keys, derr := w.Groups.Drift(id, want)
	s.behind.Store(&keys)
	if len(keys) > 0 {
		w.Log.Warn("limits wait", "chat", id, "limits", keys, "why", err)
		err = fmt.Errorf("cannot give chat %s its %s: it holds more, or the kernel refuses: %w",
			id, strings.Join(keys, ", "), chat.ErrBusy) // a bridge reads it: no paths
	}
	err = errors.Join(err, derr)
	w.Trail.Report(About(id), err)
	return err
}

// Mend puts back the limits that somebody changed in the session's cgroup, and tries again those that
// the kernel refused. The caller holds the chat's lock.
func (w *Watch) Mend(ctx context.Context, rec state.Record, want chat.Limits, s *State) error {
	keys, err := w.Groups.Drift(rec.ID, want)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // the session has just ended
	}
	behind := s.Behind()
	if len(keys) == 0 || err != nil {
		if err == nil && len(behind) > 0 {
			s.behind.Store(nil)
			w.Trail.Report(About(rec.ID), nil)
		}
		return err
	}
	isNew := slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(behind, key) })
	err = w.Apply(rec.ID, want, s, false)
	if err != nil && !isNew {
		return nil // it is a finding already
	}
	what := map[string]string{"what": "limits: " + strings.Join(keys, ", ")}
	w.Log.Warn("limits were not as recorded", "chat", rec.ID, "limits", keys, "error", err)
	return w.Trail.End(ctx, rec, "mend", what, err)
}

// State is what a session has of its limits. The zero value is that of a new session.
type State struct {
	// behind are the limits that its cgroup does not have as they are recorded.
	behind atomic.Pointer[[]string]
	// meter counts what its limits did; metering is held until that is reported.
	meter    cgroup.HitMeter
	metering sync.Mutex
}

// Begin sets the counters of a session that another chatd started.
func (s *State) Begin(met chat.LimitHits) { s.meter.Begin(met) }

// Behind are the limits that the session does not have; nil if none.
func (s *State) Behind() []string {
	if keys := s.behind.Load(); keys != nil {
		return *keys
	}
	return nil
}
