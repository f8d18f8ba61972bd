package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/archives"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// expireArchives removes the archives that have expired; since is that of overdue. It opens the
// directory where none expires too: what a kill left there is removed, and what is wrong is known
// before an archive is needed.
func (m *Manager) expireArchives(
	ctx context.Context, since map[chat.ArchiveName]time.Time,
) error {
	if m.opt.Archives == nil {
		return nil
	}
	store, err := m.archiveStore()
	if err != nil || m.opt.Archives.Expire == 0 {
		return err
	}
	all, err := store.List(chat.ArchiveFilter{})
	errs := []error{err}
	for _, a := range overdue(all, since, time.Now()) {
		if ctx.Err() == nil {
			errs = append(errs, m.expireOne(ctx, store, a))
		}
	}
	return errors.Join(errs...)
}

// overdue are the archives that were found expired for a while too: in that a clock that was set
// wrongly can be set right. since has when each was first found so, by the monotonic clock.
func overdue(
	all []archives.Manifest, since map[chat.ArchiveName]time.Time, now time.Time,
) (due []archives.Manifest) {
	found := map[chat.ArchiveName]bool{}
	for _, a := range all {
		if a.ExpiresAt == nil || now.Before(*a.ExpiresAt) {
			continue
		}
		found[a.Name] = true
		if _, known := since[a.Name]; !known {
			since[a.Name] = now
		}
		if now.Sub(since[a.Name]) >= graceOf(a.ExpiresAt.Sub(a.ArchivedAt)) {
			due = append(due, a)
		}
	}
	for name := range since {
		if !found[name] {
			delete(since, name)
		}
	}
	return due
}

// expireOne removes an archive, unless a chat is just made of it.
func (m *Manager) expireOne(
	ctx context.Context, store *archives.Store, a archives.Manifest,
) error {
	unlock, free := m.locks.tryLock(a.Chat)
	if !free {
		return nil
	}
	defer unlock()
	detail := archiveDetail(a.Name)
	detail["why"] = "expired at " + a.ExpiresAt.Format(time.RFC3339)
	return m.audited(ctx, state.Record{ID: a.Chat}, "remove_archive", detail,
		func() error { return store.Remove(a.Name) })
}
