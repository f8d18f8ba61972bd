package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Package cgroup sets a limit; this file says which, remembers what the kernel refused, and tries that
// again each minute. The process that meets a limit learns little: a shell prints "Killed", and an
// agent that cannot fork prints anything. So chatd reads the counters of every session and reports in
// the terminal's log, its own and the audit log; a run's answer reports the limits that it met. A limit
// below what a chat holds waits until the chat holds less. Package sockets counts what no cgroup counts.

// aboutLimits is the subject of the finding about limits that a session does not have.
func aboutLimits(id chat.ID) string { return "limits of chat " + string(id) }

// notKept are the limits that the session's cgroup does not have as they are recorded; nil if none.
func (s *liveSession) notKept() []string {
	if keys := s.behind.Load(); keys != nil {
		return *keys
	}
	return nil
}

// applyLimits gives a session its limits, and keeps in mind which it does not have. The caller holds the
// chat's lock. Unless forced, memory_max goes no lower than what the chat holds, or cgroup v2 would
// end processes: it follows minute by minute.
func (ss *sessions) applyLimits(rec subject, s *liveSession, force bool) error {
	want := rec.profile.Limits
	now := want
	if held, err := ss.groups.Unreclaimable(rec.ID); err == nil && !force {
		now.MemoryMax = max(want.MemoryMax, held)
	}
	err := ss.groups.Limit(rec.ID, now)
	keys, derr := ss.groups.Drift(rec.ID, want)
	s.behind.Store(&keys)
	if len(keys) > 0 {
		ss.log.Warn("limits wait", "chat", rec.ID, "limits", keys, "why", err)
		err = fmt.Errorf("cannot give chat %s its %s: it holds more, or the kernel refuses: %w",
			rec.ID, strings.Join(keys, ", "), chat.ErrBusy) // a bridge reads it: no paths
	}
	err = errors.Join(err, derr)
	ss.trail.Report(aboutLimits(rec.ID), err)
	return err
}

// mendLimits puts back the limits that somebody changed in the session's cgroup, and tries again those
// that the kernel refused. The caller holds the chat's lock.
func (ss *sessions) mendLimits(ctx context.Context, rec subject, s *liveSession) error {
	keys, err := ss.groups.Drift(rec.ID, rec.profile.Limits)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // the session has just ended
	}
	behind := s.notKept()
	if len(keys) == 0 || err != nil {
		if err == nil && len(behind) > 0 {
			s.behind.Store(nil)
			ss.trail.Report(aboutLimits(rec.ID), nil)
		}
		return err
	}
	isNew := slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(behind, key) })
	err = ss.applyLimits(rec, s, false)
	if err != nil && !isNew {
		return nil // it is a finding already
	}
	what := map[string]string{"what": "limits: " + strings.Join(keys, ", ")}
	ss.log.Warn("limits were not as recorded", "chat", rec.ID, "limits", keys, "error", err)
	return ss.trail.End(ctx, rec.Record, "mend", what, err)
}

// limitLook is how often a session's counters are read.
const limitLook = 2 * time.Second

// watchLimits reads the counters of every session until ctx ends.
func (ss *sessions) watchLimits(ctx context.Context) {
	chat.Every(ctx, limitLook, func() {
		for s, c := range ss.chats.sessionsOfChats() {
			ss.metLimits(c, s)
		}
	})
}

// metLimits reports the limits that a session met since the last call, and returns the words. Hits
// between two looks are counted, not timed.
func (ss *sessions) metLimits(rec subject, s *liveSession) []string {
	now, err := ss.groups.hits(rec.ID)
	if err != nil {
		ss.log.Debug("cannot look at the limits of a chat", "chat", rec.ID, "error", err)
		return nil
	}
	s.metering.Lock()
	defer s.metering.Unlock()
	since, report := s.meter.Take(now, time.Now())
	if report != (chat.LimitHits{}) {
		why := strings.Join(report.Words("the terminal", rec.profile.Limits), "; ")
		ss.log.Warn("a chat met its limits", "chat", rec.ID, "why", why)
		ss.trail.Note(context.Background(), rec.Record, "limit", map[string]string{"why": why}, nil)
	}
	words := since.Words("the terminal", rec.profile.Limits)
	for _, what := range words {
		ss.logs.Say(rec.ID, what)
	}
	return words
}

// hits are the counters of a chat; they are zero for one without a cgroup.
func (g *cgroups) hits(id chat.ID) (chat.LimitHits, error) {
	h, err := g.Hits(id)
	if errors.Is(err, chat.ErrNotFound) {
		return chat.LimitHits{}, nil
	}
	return h, err
}

// outOfMemory is the end of a chat's tool that the kernel ended for memory_max; empty if it did not.
func outOfMemory(l chat.Limits, kills uint64) string {
	words := strings.Join(chat.LimitHits{OOMKills: kills}.Words("the call", l), "")
	if words == "" {
		return ""
	}
	return ": " + words
}
