package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/state"
)

// expireEvery is the time between two looks for archives that have expired.
const expireEvery = time.Hour

// watchUnused archives and reaps chats that nobody uses, one after the other, and removes archives
// that have expired.
func (m *Manager) watchUnused(ctx context.Context) {
	unused, old := idle.Lasting[chat.ID]{}, idle.Lasting[chat.ArchiveName]{}
	var expired time.Time
	chat.Every(ctx, cmp.Or(m.opt.Every, time.Minute), func() {
		m.clock.Keep()
		if now := time.Now(); now.Sub(expired) >= expireEvery {
			expired = now
			m.trail.Report(aboutArchives, m.archiver.expire(ctx, old))
		}
		m.reapUnused(ctx, unused)
	})
}

// reapUnused looks once at all chats, and reaps those that it found unused for too long for a while.
func (m *Manager) reapUnused(ctx context.Context, unused idle.Lasting[chat.ID]) {
	now := time.Now()
	for _, was := range m.store.All() {
		rec := m.chats.subject(was)
		after := m.opt.Profiles[rec.Profile].ReapAfter.D()
		if ctx.Err() != nil || after == 0 || !m.isUnused(rec, after) {
			continue
		}
		if !unused.Found(rec.ID, now, after) {
			continue
		}
		unused[rec.ID] = idle.Sighting{First: time.Now(), Last: now} // again after a while, where it fails
		err := m.reapOne(ctx, rec, after)
		if errors.Is(err, admission.ErrWanted) || ctx.Err() != nil {
			err = nil
		}
		m.trail.Report("reap_after of chat "+string(rec.ID), err)
	}
	for _, id := range unused.ForgetOthers(now) {
		m.trail.Report("reap_after of chat "+string(id), nil)
	}
}

// isUnused reports whether a chat was not used for too long. One that has a schedule to come, or that
// an operator holds frozen, is none.
func (m *Manager) isUnused(rec subject, after time.Duration) bool {
	if rec.Phase != chat.Ready || time.Since(rec.UsedAt) < after || m.work(rec.ID) != "" ||
		m.groups.frozen(rec.ID) == chat.FrozenUntilThawed {
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
func (m *Manager) reapOne(ctx context.Context, rec subject, after time.Duration) error {
	if m.chats.session(rec.ID) != nil {
		// A call that uses it just now and this see each other: see sleepIdle.
		c, still := idle.Chat{ID: rec.ID, Used: rec.UsedAt}, func() bool { return m.isUnused(rec, after) }
		if slept, err := m.sleepIdle(c, "nobody uses it", still); !slept {
			return err
		}
	}
	rec, unlock, got := m.chats.tryReady(rec.ID)
	if !got {
		return nil
	}
	defer unlock()
	if m.chats.session(rec.ID) != nil || !m.isUnused(rec, after) {
		return nil // it was used
	}
	ctx, cancel := m.chats.locks.UntilWanted(ctx, rec.ID)
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
	defer m.archive.SetProgress(rec.ID, nil)
	p := packing{archiver: m.archiver, release: func() {}, occupy: func() {}} // it gives way
	if _, err := p.pack(ctx, rec.ID); err != nil {
		return fmt.Errorf("cannot archive chat %s, which nobody used since %s: it stays: %w",
			rec.ID, rec.UsedAt.Format(time.RFC3339), err)
	}
	return nil
}

// expire removes the archives that have expired; old is that of overdue. It opens the
// directory where none expires too: what a kill left there is removed, and what is wrong is known
// before an archive is needed.
func (k *archiver) expire(ctx context.Context, old idle.Lasting[chat.ArchiveName]) error {
	if k.opt.Archives == nil {
		return nil
	}
	store, err := k.open()
	if err != nil || k.opt.Archives.Expire == 0 {
		return err
	}
	all, err := store.List(chat.ArchiveFilter{})
	errs := []error{err}
	for _, a := range overdue(all, old, time.Now()) {
		if ctx.Err() == nil {
			errs = append(errs, k.expireOne(ctx, store, a))
		}
	}
	return errors.Join(errs...)
}

// overdue are the archives that were found expired for a while too.
func overdue(
	all []archives.Manifest, old idle.Lasting[chat.ArchiveName], now time.Time,
) (due []archives.Manifest) {
	for _, a := range all {
		if a.ExpiresAt == nil || now.Before(*a.ExpiresAt) {
			continue
		}
		if old.Found(a.Name, now, a.ExpiresAt.Sub(a.ArchivedAt)) {
			due = append(due, a)
		}
	}
	old.ForgetOthers(now)
	return due
}

// expireOne removes an archive, unless a chat is just made of it.
func (k *archiver) expireOne(ctx context.Context, store *archives.Store, a archives.Manifest) error {
	unlock, free := k.chats.locks.TryLock(a.Chat)
	if !free {
		return nil
	}
	defer unlock()
	detail := archiveDetail(a.Name)
	detail["why"] = "expired at " + a.ExpiresAt.Format(time.RFC3339)
	return k.trail.Around(ctx, state.Record{ID: a.Chat}, "remove_archive", detail,
		func() error { return store.Remove(a.Name) })
}
