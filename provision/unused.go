package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/state"
)

// expireEvery is the time between two looks for archives that have expired.
const expireEvery = time.Hour

// watchUnused archives and reaps chats that nobody uses, one after the other, and removes archives
// that have expired.
func (m *Manager) watchUnused(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(m.opt.Every, time.Minute))
	defer tick.Stop()
	unused, old := lasting[chat.ID]{}, lasting[chat.ArchiveName]{}
	var expired time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.keepTime()
		if now := time.Now(); expired.IsZero() || now.Sub(expired) >= expireEvery {
			expired = now
			m.report(aboutArchives, m.expireArchives(ctx, old))
		}
		m.reapUnused(ctx, unused)
	}
}

// reapUnused looks once at all chats, and reaps those that it found unused for too long for a while.
func (m *Manager) reapUnused(ctx context.Context, unused lasting[chat.ID]) {
	now := time.Now()
	for _, rec := range m.store.All() {
		after := m.opt.Profiles[rec.Profile].ReapAfter.D()
		if ctx.Err() != nil || after == 0 || !m.isUnused(rec, after) {
			continue
		}
		if !unused.found(rec.ID, now, after) {
			continue
		}
		unused[rec.ID] = sighting{time.Now(), now} // again after a while, where it fails
		err := m.reapOne(ctx, rec, after)
		if errors.Is(err, errWanted) || ctx.Err() != nil {
			err = nil
		}
		m.report("reap_after of chat "+string(rec.ID), err)
	}
	for _, id := range unused.forgetOthers(now) {
		m.clearFinding("reap_after of chat " + string(id))
	}
}

// isUnused reports whether a chat was not used for too long. One that has a schedule to come, or that
// an operator holds frozen, is none.
func (m *Manager) isUnused(rec state.Record, after time.Duration) bool {
	if rec.Phase != chat.Ready || time.Since(rec.UsedAt) < after || m.work(rec.ID) != "" ||
		m.frozen(rec.ID) == chat.FrozenUntilThawed {
		return false
	}
	all, err := m.store.Schedules(rec.ID)
	for _, s := range all {
		if s.Next != nil || s.RunningSince != nil {
			return false
		}
	}
	return err == nil
}

// errTooLong ends an archive that nobody waits for.
var errTooLong = fmt.Errorf("it takes over %s: %w", archiveHold, chat.ErrBusy)

// reapOne archives and reaps a chat, unless it is used meanwhile.
func (m *Manager) reapOne(ctx context.Context, rec state.Record, after time.Duration) error {
	if m.session(rec.ID) != nil {
		if slept, err := m.sleepUnused(rec, after); !slept {
			return err
		}
	}
	unlock, free := m.locks.tryLock(rec.ID)
	if !free {
		return nil
	}
	defer unlock()
	rec, err := m.store.Get(rec.ID)
	if err != nil || m.session(rec.ID) != nil || !m.isUnused(rec, after) {
		return nil // it is gone, or was used
	}
	ctx, cancel := m.locks.untilWanted(ctx, rec.ID)
	defer cancel()
	// A command of the operator's that hangs must not keep all others from their end.
	ctx, late := context.WithTimeoutCause(ctx, archiveHold, errTooLong)
	defer late()
	m.log.Info("archiving a chat that nobody uses", "chat", rec.ID, "used_at", rec.UsedAt,
		"reap_after", after)
	if m.opt.Profiles[rec.Profile].ReapWithoutArchive {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return m.reapReady(context.WithoutCancel(ctx), rec)
	}
	defer m.archive.progress(rec.ID, nil)
	lock := archiveLock{release: func() {}, occupy: func() {}} // it gives way
	if _, err := m.archiveLocked(ctx, rec.ID, chat.ToArchive{}, lock); err != nil {
		return fmt.Errorf("cannot archive chat %s, which nobody used since %s: it stays: %w",
			rec.ID, rec.UsedAt.Format(time.RFC3339), err)
	}
	return nil
}

// sleepUnused puts a chat to sleep before it is reaped. A call that uses it just now and this see
// each other: see [Manager.sleepIdle].
func (m *Manager) sleepUnused(rec state.Record, after time.Duration) (bool, error) {
	c := idle.Chat{ID: rec.ID, Used: rec.UsedAt}
	return m.sleepIdle(c, "nobody uses it", func() bool { return m.isUnused(rec, after) })
}
