package archives

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Activity is what is done with archives just now. The zero value is that of a daemon which does
// nothing yet.
type Activity struct {
	mu    sync.Mutex
	store *Store
	// under has the [chat.ArchiveProgress] of each chat of which an archive is made.
	under sync.Map
	// keeping are the chats of which a kept archive is made, or a clone removed.
	keeping sync.Map
	// groups are the cgroups or units of commands that are done beside a session of that chat.
	groups sync.Map
}

// Open opens the directory of the archives at its first use.
func (a *Activity) Open(o Options) (*Store, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store != nil {
		return a.store, nil
	}
	s, err := Open(o)
	if err == nil {
		err = s.Tidy()
	}
	if err != nil {
		return nil, err
	}
	a.store = s
	return s, nil
}

// Close closes the directory, if it was opened.
func (a *Activity) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return nil
	}
	return a.store.Close()
}

// Keep begins a kept archive of a chat, unless one is being made.
func (a *Activity) Keep(id chat.ID) (begun bool) {
	_, is := a.keeping.LoadOrStore(id, true)
	return !is
}

// Kept ends what Keep began.
func (a *Activity) Kept(id chat.ID) { a.keeping.Delete(id) }

// Keeps reports whether Keep has begun and Kept has not ended it.
func (a *Activity) Keeps(id chat.ID) bool {
	_, is := a.keeping.Load(id)
	return is
}

// Beside gives a group of its own, which is not a chat's, to a command beside a session, until end.
func (a *Activity) Beside(of chat.ID, taken func(chat.ID) bool) (group chat.ID, end func()) {
	for {
		group = chat.ID(fmt.Sprintf("%016x", rand.Uint64()))
		if taken(group) {
			continue
		}
		if _, is := a.groups.LoadOrStore(group, of); !is {
			return group, func() { a.groups.Delete(group) }
		}
	}
}

// IsBeside reports whether a group was given by Beside.
func (a *Activity) IsBeside(id chat.ID) bool {
	_, is := a.groups.Load(id)
	return is
}

// Besides are the groups of commands beside the session of a chat.
func (a *Activity) Besides(id chat.ID) (groups []chat.ID) {
	a.groups.Range(func(group, of any) bool {
		if of == id {
			groups = append(groups, group.(chat.ID))
		}
		return true
	})
	return groups
}

// SetProgress sets how far the archive of a chat is; nil is none. The caller does not change p later.
func (a *Activity) SetProgress(id chat.ID, p *chat.ArchiveProgress) {
	if p == nil {
		a.under.Delete(id)
		return
	}
	a.under.Store(id, p)
}

// Progress is how far the archive of a chat is; nil if none is made.
func (a *Activity) Progress(id chat.ID) *chat.ArchiveProgress {
	p, _ := a.under.Load(id)
	now, _ := p.(*chat.ArchiveProgress)
	return now
}
