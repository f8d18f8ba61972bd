package enforce

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
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
	maps.DeleteFunc(w.byMount, func(_ uint64, other *watchedSession) bool { return other == s })
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
		if t.Watched {
			if w.marked[t.fsid]--; w.marked[t.fsid] == 0 {
				_ = unix.FanotifyMark(w.namesFD, unix.FAN_MARK_REMOVE|unix.FAN_MARK_FILESYSTEM,
					nameMask, t.fd, "")
			}
		}
		unix.Close(t.fd)
	}
}

// forget releases a session. Only when nothing of it is left may another session of its chat begin:
// the saved files are named by chat.
func (e *enforcer) forget(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	id := s.initProc.chat
	sys.Failpoint("forget.begun")
	e.watch.drop(id)
	s.close()
	sys.Failpoint("forget.closed")
	e.removeSaved(id)
	sys.Failpoint("forget.removed")
	e.mu.Lock()
	delete(e.sessions, id)
	e.mu.Unlock()
}

// removeSaved removes the files of a session for a later worker. It removes last the one from which
// that worker would resume the session.
func (e *enforcer) removeSaved(id chat.ID) {
	files := []string{e.watch.backlogFile(id), e.watch.journalFile(id), e.file(id) + ".new", e.file(id)}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(e.errs, "chatd-enforce: cannot forget a session: %v\n", err)
		}
	}
}
