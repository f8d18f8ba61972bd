package enforce

import (
	"cmp"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// why names what closes, or makes read-only, the file that an order names: the path itself where a
// rule is about it, or a name that it or a directory around it had, or another link to it. The name
// is empty where nothing is known. It also answers for a session that has just ended: a one-shot
// session ends with the answer of its file tool.
func (e *enforcer) why(o orders.Order) (orders.Answer, error) {
	s := e.named(o.Chat)
	if s == nil || s.initProc != initProcessOf(o) {
		return orders.Answer{}, fmt.Errorf("nobody keeps process %d of the chat: %w", o.PID, chat.ErrNotFound)
	}
	p := path.Clean("/" + string(o.Path))
	by := e.watch.nameOf(o.Chat, p)
	if by == "" {
		by = s.otherNameOf(p)
	}
	return orders.Answer{By: []byte(by)}, nil
}

// nameOf returns the name by which the rules deny a path: its own, or an earlier one.
func (w *watch) nameOf(id chat.ID, p string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sessions[id]; s != nil {
		return s.deniedName(p)
	}
	return ""
}

// deniedName is the first of a path's names that rules deny, or the denied name that its file or a
// directory around it had; empty if there is none.
func (s *watchedSession) deniedName(p string) string {
	for _, name := range s.namesOf(p) {
		if classBy(s.walls, []string{name}) != filerules.Open {
			return name
		}
	}
	for t, ok := s.treeOf(p); ok && p != "/" && chat.Within(p, t.Path); p = path.Dir(p) {
		fd, _, err := sys.OpenPath(t.Tree, sys.Rest(p, t.Path))
		if err != nil {
			continue
		}
		h, err := handleOf(fd, t.fsid)
		unix.Close(fd)
		if by := cmp.Or(s.denied[h].by, s.before[h].by); err == nil && by != "" {
			return by
		}
		if s.isException(p) {
			break // the directories around it do not close it
		}
	}
	return ""
}

// otherNameOf is the denied name of what has a mount at p, or at a directory around it,
// because of another name.
func (s *session) otherNameOf(p string) string {
	names := s.causes.Load()
	if names == nil {
		return ""
	}
	for ; p != "/"; p = path.Dir(p) {
		if by := (*names)[p]; by != "" {
			return by
		}
	}
	return ""
}
