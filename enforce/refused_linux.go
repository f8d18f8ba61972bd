package enforce

import (
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
)

// Bounds of the refused opens that are held until chatd asks: files of a chat, the first bytes of
// their names, and chats. The last bounds one answer, so that it fits on the wire.
const (
	maxRefused       = 8
	maxRefusedName   = 1024
	maxRefusedChats  = 4096
	maxRefusedAnswer = 12 << 10 // bytes of names of further chats' files; one chat's come whole
)

// refusals counts, for each chat, the opens that were refused. It is kept by chat and not by
// session: a chat that ends its session after an open takes nothing away with it.
type refusals struct {
	mu    sync.Mutex
	chats map[chat.ID]*orders.Refusals
}

// add counts one refused open of the file at path. by finds the name that is denied: its own,
// or one that it or a directory around it had. It is asked once for a file, so that who is
// refused without end costs no more than who is not.
func (r *refusals) add(id chat.ID, path string, by func() string) {
	path = path[:min(len(path), maxRefusedName)]
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chats[id]
	if c == nil {
		if len(r.chats) >= maxRefusedChats {
			return // nobody asked for so long that there is no room
		}
		c = &orders.Refusals{Chat: id}
		r.chats[id] = c
	}
	i := slices.IndexFunc(c.Files, func(f orders.RefusedFile) bool { return string(f.Path) == path })
	switch {
	case i >= 0:
		c.Files[i].Times++
	case len(c.Files) < maxRefused:
		name := by()
		c.Files = append(c.Files, orders.RefusedFile{
			Path: []byte(path), By: []byte(name[:min(len(name), maxRefusedName)]), Times: 1,
		})
	default:
		c.More++
	}
}

// take hands out what was counted, as much as fits into one answer. Which chats come first is
// left to chance, so that none can hold up another's.
func (r *refusals) take() (a orders.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := 0
	for id, c := range r.chats {
		if size > maxRefusedAnswer {
			a.MoreRefused = true
			break
		}
		for _, f := range c.Files {
			size += len(f.Path) + len(f.By)
		}
		a.Refused = append(a.Refused, *c)
		size += len(id)
		delete(r.chats, id)
	}
	return a
}

// recordRefused counts an open of what fd is open on. The caller holds the watch's lock.
func (w *watch) recordRefused(s *watchedSession, fd int) {
	p, err := pathOf(fd)
	if err != nil {
		p = "" // it is counted all the same
	}
	if t, ok := s.treeOf(p); ok && t.Writable && !t.Watched {
		w.recheck(s.session.initProc.chat) // nothing else tells that the file is there
	}
	w.refused.add(s.session.initProc.chat, p, func() string { return s.deniedName(p) })
}
