package provision

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/state"
)

// archiveKeeper has the archives, once they are used, and how far those are that are being made.
// The zero value is ready.
type archiveKeeper struct {
	mu    sync.Mutex
	store *archives.Store
	under map[chat.ID]chat.ArchiveProgress
	// tried has the archives that could not be read, with which identities.
	tried map[chat.ArchiveName]string
	// keeping are the chats of which a kept archive is made, or a clone removed.
	keeping map[chat.ID]bool
	// groups are the cgroups or units of commands that are done beside a session of that chat.
	groups map[chat.ID]chat.ID
}

// keep begins a kept archive of a chat, unless one is being made.
func (k *archiveKeeper) keep(id chat.ID) (begun bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeping[id] {
		return false
	}
	if k.keeping == nil {
		k.keeping = map[chat.ID]bool{}
	}
	k.keeping[id] = true
	return true
}

func (k *archiveKeeper) kept(id chat.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keeping, id)
}

// beside gives a group of its own, which is not a chat's, to a command beside a session, until end.
func (k *archiveKeeper) beside(of chat.ID, taken func(chat.ID) bool) (group chat.ID, end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for group == "" || taken(group) || k.groups[group] != "" {
		group = chat.ID(fmt.Sprintf("%016x", rand.Uint64()))
	}
	if k.groups == nil {
		k.groups = map[chat.ID]chat.ID{}
	}
	k.groups[group] = of
	return group, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.groups, group)
	}
}

func (k *archiveKeeper) isBeside(id chat.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.groups[id] != ""
}

// besides are the groups of commands beside the session of a chat.
func (k *archiveKeeper) besides(id chat.ID) (groups []chat.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for group, of := range k.groups {
		if of == id {
			groups = append(groups, group)
		}
	}
	return groups
}

func (k *archiveKeeper) keeps(id chat.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keeping[id]
}

// progress sets how far the archive of a chat is; nil is none.
func (k *archiveKeeper) progress(id chat.ID, p *chat.ArchiveProgress) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p == nil {
		delete(k.under, id)
		return
	}
	if k.under == nil {
		k.under = map[chat.ID]chat.ArchiveProgress{}
	}
	k.under[id] = *p
}

func (k *archiveKeeper) progressOf(id chat.ID) *chat.ArchiveProgress {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, under := k.under[id]; under {
		return &p
	}
	return nil
}

func (k *archiveKeeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.store == nil {
		return nil
	}
	return k.store.Close()
}

// archiveStore opens the directory of the archives at its first use.
func (m *Manager) archiveStore() (*archives.Store, error) {
	o := m.opt.Archives
	if o == nil {
		return nil, fmt.Errorf("cannot archive: the config has no key archive: %w",
			chat.ErrUnsupported)
	}
	m.archive.mu.Lock()
	defer m.archive.mu.Unlock()
	if m.archive.store != nil {
		return m.archive.store, nil
	}
	s, err := archives.Open(archives.Options{
		Dir: o.Dir, Command: o.Command, UID: o.UID, GID: o.GID, Expire: o.Expire,
		Key: m.store.DeriveKey("archives"),
	})
	if err == nil {
		err = s.Tidy()
	}
	if err != nil {
		return nil, err
	}
	m.archive.store = s
	return s, nil
}

// Archives lists the archives of the caller's chats, or an operator everybody's, the oldest first.
func (m *Manager) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	caller := chat.CallerFrom(ctx)
	switch {
	case caller.Role == chat.RoleOperator:
	case f.Owner == "" || f.Owner == caller.Name:
		f.Owner = caller.Name
	default:
		return nil, nil // as a list of chats
	}
	store, err := m.archiveStore()
	if err != nil {
		return nil, err
	}
	all, err := store.List(f)
	if all == nil {
		return nil, err
	}
	list := make([]chat.Archive, len(all))
	for i, a := range all {
		list[i] = a.Archive
	}
	if err != nil && caller.Role == chat.RoleOperator { // it is logged, which no bridge may repeat
		m.setFinding(aboutArchives, err)
	}
	return list, nil
}

const aboutArchives = "the archives"

// reachArchive returns an archive of the caller's, or of anybody's for an operator.
func (m *Manager) reachArchive(
	ctx context.Context, name chat.ArchiveName,
) (*archives.Store, archives.Manifest, error) {
	store, err := m.archiveStore()
	if err != nil {
		return nil, archives.Manifest{}, err
	}
	a, err := store.Get(name)
	if errors.Is(err, chat.ErrInvalid) && chat.CallerFrom(ctx).Role != chat.RoleOperator {
		// Nobody knows whose it is.
		err = fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound)
	}
	if err == nil && !chat.CallerFrom(ctx).MayReach(a.Owner) {
		err = errors.Join(
			m.audit(ctx, state.Record{ID: a.Chat}, "reach", "denied", archiveDetail(name)),
			fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound))
	}
	return store, a, err
}

func archiveDetail(name chat.ArchiveName) map[string]string {
	return map[string]string{"archive": string(name)}
}

// VerifyArchive reads an archive and compares its hashes with those of when it was checked.
func (m *Manager) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	store, a, err := m.reachArchive(ctx, name)
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	leave, err := m.beginArchive(ctx, state.Record{ID: a.Chat, Owner: a.Owner}, "verify")
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	defer leave()
	return store.Verify(ctx, name)
}

// RemoveArchive removes an archive, once no chat is made of it. An operator removes one that cannot
// be used too.
func (m *Manager) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	store, _, err := m.reachArchive(ctx, name)
	if err != nil && !errors.Is(err, chat.ErrInvalid) {
		return err
	}
	unlock, err := m.locks.lock(ctx, name.ID())
	if err != nil {
		return err
	}
	defer unlock()
	rec := state.Record{ID: name.ID()}
	return m.audited(ctx, rec, "remove_archive", archiveDetail(name), func() error {
		return store.Remove(name)
	})
}

// Backup is [state.Store.Backup], for an operator.
func (m *Manager) Backup(ctx context.Context) (b chat.Backup, err error) {
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return b, fmt.Errorf("cannot back up: the archive has the install key, and is for operators: %w", chat.ErrDenied)
	}
	err = m.audited(ctx, state.Record{}, "backup", nil, func() (err error) { b, err = m.store.Backup(ctx); return })
	return b, err
}
