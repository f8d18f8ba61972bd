package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

// memoryArchives are those of a Memory.
type memoryArchives struct {
	archives map[chat.ArchiveName]*memoryArchive
	shown    chan struct{} // closed when Get shows how far an archive is
}

// memoryArchive is an archive and all that is in it.
type memoryArchive struct {
	chat.Archive
	of        chat.Chat
	files     map[string][]byte
	schedules []chat.Schedule
	damage    error
}

// Archive keeps the chat as it is, and reaps it unless how.Keep.
func (m *Memory) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	if _, err := m.Get(ctx, id); err != nil {
		return chat.Archive{}, err
	}
	if err := m.onArchive(ctx); err != nil {
		return chat.Archive{}, err
	}
	a, err := m.writeArchive(ctx, id, how)
	if err == nil && !how.Keep {
		err = m.Reap(ctx, id)
	}
	return a, err
}

func (m *Memory) onArchive(ctx context.Context) error {
	if m.OnArchive == nil {
		return nil
	}
	return m.OnArchive(ctx)
}

// writeArchive names it by the clock; another archive of the same second is a second later.
func (m *Memory) writeArchive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Archive{}, err
	}
	if err := m.stuck[id]; err != nil {
		return chat.Archive{}, fmt.Errorf("cannot archive chat %s: %w", id, err)
	}
	setAwake(c, false)
	c.Archiving = nil
	at := m.Now().UTC().Truncate(time.Second)
	for m.archives[chat.NewArchiveName(id, at)] != nil {
		at = at.Add(time.Second)
	}
	a := &memoryArchive{of: *c, files: maps.Clone(m.files[id]),
		schedules: slices.Clone(m.schedules[id])}
	a.Archive = chat.Archive{
		Name: chat.NewArchiveName(id, at), Chat: id, ExternalID: c.ExternalID, Owner: c.Owner,
		Agent: c.Agent, Profile: c.Profile, Labels: maps.Clone(c.Labels), CreatedAt: c.CreatedAt,
		ArchivedAt: at, Entries: int64(len(a.files)), Size: 64, Kept: how.Keep,
	}
	for _, content := range a.files {
		a.Bytes += int64(len(content))
	}
	if m.archives == nil {
		m.archives = map[chat.ArchiveName]*memoryArchive{}
	}
	m.archives[a.Name] = a
	return a.Archive, nil
}

// Archives lists those of the caller.
func (m *Memory) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []chat.Archive
	for _, a := range m.archives {
		if chat.CallerFrom(ctx).MayReach(a.Owner) && f.Matches(a.Archive) {
			list = append(list, a.Archive)
		}
	}
	slices.SortFunc(list, func(a, b chat.Archive) int {
		return cmp.Or(a.ArchivedAt.Compare(b.ArchivedAt), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// reachArchive finds an archive for the caller; the lock is held.
func (m *Memory) reachArchive(ctx context.Context, name chat.ArchiveName) (*memoryArchive, error) {
	a := m.archives[name]
	if a == nil || !chat.CallerFrom(ctx).MayReach(a.Owner) {
		return nil, fmt.Errorf("cannot find archive %s: %w",
			chat.Quote(string(name)), chat.ErrNotFound)
	}
	return a, nil
}

// VerifyArchive finds what [Memory.DamageArchive] did.
func (m *Memory) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	if err := m.onArchive(ctx); err != nil {
		return chat.ArchiveCheck{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.reachArchive(ctx, name)
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	if a.damage != nil {
		return chat.ArchiveCheck{}, fmt.Errorf("cannot verify archive %s: %w", name, a.damage)
	}
	return chat.ArchiveCheck{Name: name, Size: a.Size}, nil
}

// Unarchive makes the chat again, asleep and under a uid that was never given.
func (m *Memory) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	if err := m.onArchive(ctx); err != nil {
		return chat.Chat{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, err := m.reachArchive(ctx, name)
	if err != nil {
		return chat.Chat{}, err
	}
	if m.chats[a.Chat] != nil {
		return chat.Chat{}, fmt.Errorf("cannot unarchive %s: chat %s exists: %w",
			name, a.Chat, chat.ErrExists)
	}
	if a.damage != nil {
		return chat.Chat{}, fmt.Errorf("cannot unarchive %s: %w", name, a.damage)
	}
	c := a.of
	c.UID, c.Labels = m.nextUID, maps.Clone(a.Labels)
	m.nextUID++
	m.chats[c.ID] = &c
	m.files[c.ID], m.schedules[c.ID] = maps.Clone(a.files), slices.Clone(a.schedules)
	return c, nil
}

// RemoveArchive forgets it.
func (m *Memory) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.reachArchive(ctx, name)
	if err == nil {
		delete(m.archives, name)
	}
	return err
}

// ChangeArchive changes what is said of an archive.
func (m *Memory) ChangeArchive(name chat.ArchiveName, change func(*chat.Archive)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.archives[name].Archive)
}

// DamageArchive damages an archive.
func (m *Memory) DamageArchive(name chat.ArchiveName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.archives[name].damage = errors.New("it is not whole: unexpected EOF")
}

// Archiving says how far the archive of a chat is. The channel is closed when Get has shown it.
func (m *Memory) Archiving(id chat.ID, p chat.ArchiveProgress) (shown <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chats[id].Archiving = &p
	m.shown = make(chan struct{})
	return m.shown
}

// showArchiving notes that Get shows c.
func (m *memoryArchives) showArchiving(c *chat.Chat) {
	if c.Archiving != nil && m.shown != nil {
		close(m.shown)
		m.shown = nil
	}
}
