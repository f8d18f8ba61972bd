package scan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// maxPath bounds the path of a line, in bytes.
const maxPath = 4096

var (
	errMany = fmt.Errorf("there are more than %d file systems", maxMounts)
	errLate = errors.New("the time is over; this and what follows")
)

// walk is one walk over all mounts.
type walk struct {
	req     chat.StrayRequest
	say     func(chat.StrayLine) error
	err     error // of the first line that nobody read
	end     time.Time
	entries int
}

func newWalk(req chat.StrayRequest, say func(chat.StrayLine) error) *walk {
	return &walk{req: req, say: say, end: time.Now().Add(req.For)}
}

// all walks the mounts, and names those that it leaves out.
func (w *walk) all(mounts []sys.Mount) chat.StrayEnd {
	chosen, left := chooseMounts(mounts, w.req.Under)
	for _, m := range left {
		w.unseen(m.Path, fmt.Errorf("%s: %w", m.Kind, errKind))
	}
	var err error
	for _, t := range w.openMounts(chosen) {
		if err != nil {
			_ = unix.Close(t.fd)
			w.unseen(t.Path, err)
			continue
		}
		err = sys.Walk{
			Seen: func(path string, st *unix.Stat_t) error { return w.seen(t.Path, path, st) },
			Unseen: func(path string, why error) {
				if why != unix.EXDEV { // a mount, which is walked by itself
					w.unseen(path, why)
				}
			},
		}.From(t.fd, t.Path)
	}
	end := chat.StrayEnd{Entries: w.entries}
	if w.err != nil {
		end.Error = fmt.Sprintf("cannot report a file: %v", w.err)
	}
	return end
}

func (w *walk) seen(mount, path string, st *unix.Stat_t) error {
	w.entries++
	if wanted(w.req.Spent, st.Uid) {
		w.line(chat.StrayLine{Find: &chat.Stray{UID: st.Uid, Mount: []byte(mount), Path: cut(path)}})
	}
	if w.err == nil && time.Now().After(w.end) {
		w.unseen(path, errLate)
		return errLate
	}
	return w.err
}

func (w *walk) unseen(path string, why error) {
	w.line(chat.StrayLine{Unseen: &chat.Unseen{Path: cut(path), Why: why.Error()}})
}

func (w *walk) line(l chat.StrayLine) {
	if w.err == nil {
		w.err = w.say(l)
	}
}

func cut(path string) []byte { return []byte(path[:min(len(path), maxPath)]) }

// wanted reports whether a uid is in one of the ranges.
func wanted(spent [][2]uint32, uid uint32) bool {
	_, found := slices.BinarySearchFunc(spent, uid, func(r [2]uint32, uid uint32) int {
		if r[0] <= uid && uid <= r[1] {
			return 0
		}
		return cmp.Compare(r[0], uid)
	})
	return found
}
