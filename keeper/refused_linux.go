package keeper

import (
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Bounds of what is held of one chat's refused opens until chatd asks: that many files, and
// the first bytes of their names. Of one answer, so that it fits on the wire.
const (
	maxRefused       = 8
	maxRefusedName   = 1024
	maxRefusedAnswer = 12 << 10 // bytes of names of further chats' files; one chat's come whole
)

// refusals counts, for each chat, the opens that were refused. It is kept by chat and not by
// session: a chat that ends its session after an open takes nothing away with it.
// The zero value is ready.
type refusals struct {
	mu    sync.Mutex
	chats map[chat.ID]*Refusals
}

// add counts one refused open of the file at path. by is the name that is denied: its own, or
// one that it or a directory around it had.
func (r *refusals) add(id chat.ID, path, by string) {
	path, by = path[:min(len(path), maxRefusedName)], by[:min(len(by), maxRefusedName)]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.chats == nil {
		r.chats = map[chat.ID]*Refusals{}
	}
	c := r.chats[id]
	if c == nil {
		c = &Refusals{Chat: id}
		r.chats[id] = c
	}
	same := func(f RefusedFile) bool { return string(f.Path) == path && string(f.By) == by }
	if i := slices.IndexFunc(c.Files, same); i >= 0 {
		c.Files[i].Times++
	} else if len(c.Files) < maxRefused {
		c.Files = append(c.Files, RefusedFile{[]byte(path), []byte(by), 1})
	} else {
		c.More++
	}
}

// take hands out what was counted, as much as fits into one answer. Which chats come first is left to chance, so that none can hold up another's.
func (r *refusals) take() (a Answer) {
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

// noteRefused counts an open of what fd is open on. The caller holds the watch's lock.
func (w *watch) noteRefused(s *watched, fd int) {
	p, err := pathOf(fd)
	if err != nil {
		p = "" // it is counted all the same
	}
	w.refused.add(s.k.leader.chat, p, s.deniedName(p))
}
