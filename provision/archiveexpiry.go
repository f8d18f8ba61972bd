package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/state"
)

// expireArchives removes the archives that have expired; old is that of overdue. It opens the
// directory where none expires too: what a kill left there is removed, and what is wrong is known
// before an archive is needed.
func (m *Manager) expireArchives(ctx context.Context, old lasting[chat.ArchiveName]) error {
	if m.opt.Archives == nil {
		return nil
	}
	store, err := m.archiveStore()
	if err != nil || m.opt.Archives.Expire == 0 {
		return err
	}
	all, err := store.List(chat.ArchiveFilter{})
	errs := []error{err}
	for _, a := range overdue(all, old, time.Now()) {
		if ctx.Err() == nil {
			errs = append(errs, m.expireOne(ctx, store, a))
		}
	}
	return errors.Join(errs...)
}

// overdue are the archives that were found expired for a while too.
func overdue(
	all []archives.Manifest, old lasting[chat.ArchiveName], now time.Time,
) (due []archives.Manifest) {
	for _, a := range all {
		if a.ExpiresAt == nil || now.Before(*a.ExpiresAt) {
			continue
		}
		if old.found(a.Name, now, a.ExpiresAt.Sub(a.ArchivedAt)) {
			due = append(due, a)
		}
	}
	old.forgetOthers(now)
	return due
}

// expireOne removes an archive, unless a chat is just made of it.
func (m *Manager) expireOne(ctx context.Context, store *archives.Store, a archives.Manifest) error {
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
