package provision

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// A session keeps some of what it was started with until it ends: its view, its variables, what
// each process inherits. This file compares that with what the chat has by now, and the limits with
// those of its cgroup.

// basis returns a digest of each thing that a session has from start to end, by its key.
func (m *Manager) basis(rec state.Record) map[string]string {
	p := m.profile(rec)
	env := map[string]string{}
	maps.Copy(env, p.Env)
	maps.Copy(env, rec.Env)
	all := map[string]string{}
	for key, v := range map[string]any{
		"env": env, "secrets": m.secretVars(rec), "network": p.EffectiveNetwork(),
		"commands": p.Commands, "expose_paths": p.ExposePaths, "allow_read_paths": p.AllowReadPaths,
		"allow_write_paths": p.AllowWritePaths, "allow_netlink": p.AllowNetlink,
		"allow_seccomp": p.AllowSeccomp, "limits.shm_size": p.Limits.ShmSize,
		"limits.nofile": p.Limits.NoFile, "limits.fsize": p.Limits.FSize,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		if string(text) == "[]" {
			text = []byte("null")
		}
		all[key] = fmt.Sprintf("%x", sha256.Sum256(text))[:16]
	}
	return all
}

// oldPlan names what a session has otherwise than the chat's record and profile say now.
func (m *Manager) oldPlan(rec state.Record, s *liveSession) (keys []string) {
	for key, now := range m.basis(rec) {
		if s.Basis[key] != now {
			keys = append(keys, key)
		}
	}
	if behind := s.behind.Load(); behind != nil {
		for _, key := range *behind {
			keys = append(keys, "limits."+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// changedBy tells what became of a patch.
func (m *Manager) changedBy(before, after state.Record, p chat.Patch) chat.Changed {
	s := m.session(after.ID)
	was, is := m.basis(before), m.basis(after)
	keys := namedBy(p)
	for key := range is {
		if was[key] != is[key] {
			keys = append(keys, key)
		}
	}
	now, then := m.profile(before), m.profile(after)
	for _, key := range now.Limits.Differing(then.Limits) {
		keys = append(keys, "limits."+key)
	}
	if !slices.Equal(now.Egress, then.Egress) {
		keys = append(keys, "egress")
	}
	slices.Sort(keys)
	c := chat.Changed{Now: []string{}, NextWake: []string{}}
	old := []string{}
	if s.lives() {
		old = m.oldPlan(after, s)
	}
	for _, key := range slices.Compact(keys) {
		_, fixed := is[key]
		waits := slices.Contains(old, key) || key == "egress" && slices.Contains(old, "network")
		switch limit, isLimit := strings.CutPrefix(key, "limits."); {
		case isLimit && s.lives() && s.isBehind(limit):
			c.Retried = append(c.Retried, key)
		case waits, !s.lives() && (fixed || isLimit && !isDiskLimit(limit)):
			c.NextWake = append(c.NextWake, key)
		default:
			c.Now = append(c.Now, key)
		}
	}
	return c
}

// isDiskLimit reports whether a limit is of the uid, and not of a session.
func isDiskLimit(key string) bool { return key == "disk_max" || key == "inodes_max" }

// namedBy are the things that a patch names.
func namedBy(p chat.Patch) (keys []string) {
	for key, is := range map[string]bool{
		"labels": p.NoLabels || p.Labels != nil, "env": p.ChangesEnv(), "egress": p.ChangesEgress(),
		"profile": p.Profile != "",
	} {
		if is {
			keys = append(keys, key)
		}
	}
	for key := range p.Limits {
		keys = append(keys, "limits."+key)
	}
	return keys
}

func (s *liveSession) isBehind(limit string) bool {
	behind := s.behind.Load()
	return behind != nil && slices.Contains(*behind, limit)
}

// limitsOf is the subject of the finding about limits that a session does not have.
func limitsOf(id chat.ID) string { return "limits of chat " + string(id) }

// applyLimits gives a session the limits of its record, and keeps in mind which it does not have.
// The caller holds the chat's lock. Unless forced, memory_max goes no lower than what the chat
// holds, or cgroup v2 would end processes: it follows minute by minute.
func (m *Manager) applyLimits(rec state.Record, s *liveSession, force bool) error {
	want := m.profile(rec).Limits
	l := want
	if held, err := m.groups.Held(rec.ID); err == nil && !force {
		l.MemoryMax = max(want.MemoryMax, held)
	}
	err := m.groups.Limit(rec.ID, l)
	keys, derr := m.groups.Drift(rec.ID, want)
	s.setBehind(keys)
	if len(keys) > 0 {
		m.log.Warn("limits wait", "chat", rec.ID, "limits", keys, "why", err)
		err = fmt.Errorf("cannot give chat %s its %s: it holds more, or the kernel refuses: %w",
			rec.ID, strings.Join(keys, ", "), chat.ErrBusy) // a bridge reads it: no paths
	}
	err = errors.Join(err, derr)
	m.report(limitsOf(rec.ID), err)
	return err
}

// limited is when a patch changed the session's limits last.
func (s *liveSession) limited() (at time.Time) {
	if last := s.limitedAt.Load(); last != nil {
		at = *last
	}
	return at
}

func (s *liveSession) setBehind(keys []string) {
	if len(keys) == 0 {
		s.behind.Store(nil)
		return
	}
	s.behind.Store(&keys)
}

// mendLimits puts back the limits that somebody changed in the session's cgroup, and tries again
// those that the kernel refused. The caller holds the chat's lock.
func (m *Manager) mendLimits(ctx context.Context, rec state.Record, s *liveSession) error {
	keys, err := m.groups.Drift(rec.ID, m.profile(rec).Limits)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // the session has just ended
	}
	if len(keys) == 0 || err != nil {
		if err == nil && s.behind.Load() != nil {
			s.setBehind(nil)
			m.clearFinding(limitsOf(rec.ID))
		}
		return err
	}
	isNew := slices.ContainsFunc(keys, func(key string) bool { return !s.isBehind(key) })
	err = m.applyLimits(rec, s, false)
	if err != nil && !isNew {
		return nil // it is a finding already
	}
	what := map[string]string{"what": "limits: " + strings.Join(keys, ", ")}
	m.log.Warn("limits were not as recorded", "chat", rec.ID, "limits", keys, "error", err)
	return m.auditEnd(ctx, rec, "mend", what, err)
}
