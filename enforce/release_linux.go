package enforce

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// drop forgets a session that has ended; its mounts, and their marks, ended with it.
func (w *watch) drop(id chat.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[id]
	if s == nil {
		return
	}
	delete(w.sessions, id)
	w.asking.Lock()
	defer w.asking.Unlock()
	for id, other := range w.byMount {
		if other == s {
			delete(w.byMount, id)
		}
	}
	w.release(s)
}

// release closes what begin opened.
func (w *watch) release(s *watchedSession) {
	_ = s.journal.Close() // nil if it came to none
	clear(w.owners)       // they name the session
	for _, t := range s.trees {
		w.roots[t.root] = slices.DeleteFunc(w.roots[t.root], func(r sessionRoot) bool { return r.s == s })
		if len(w.roots[t.root]) == 0 {
			delete(w.roots, t.root)
		}
		if t.Writable {
			if w.marked[t.fsid]--; w.marked[t.fsid] == 0 {
				_ = unix.FanotifyMark(w.namesFD, unix.FAN_MARK_REMOVE|unix.FAN_MARK_FILESYSTEM, nameMask, t.fd, "")
			}
		}
		unix.Close(t.fd)
	}
}
