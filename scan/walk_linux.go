package scan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

const (
	// batch is how many names are read at once.
	batch = 256
	// maxPath bounds the path of a find, in bytes.
	maxPath = 4096
	// maxDepth is how many directories a walk enters below each other.
	maxDepth = 64
	// maxBelow is how many names of directories are held of each.
	maxBelow = 4096
	// maxOwners bounds the uids that are reported of one directory.
	maxOwners = 256
)

var (
	errDeep = fmt.Errorf("it lies below %d directories", maxDepth)
	errMany = fmt.Errorf("there are more than %d file systems", maxMounts)
)

// walk is one walk over all mounts.
type walk struct {
	req     chat.StrayRequest
	say     func(chat.StrayLine) error
	at      atomic.Pointer[[]byte] // the directory that it is in
	mount   string
	entries int
	unseen  int
	why     string
}

func newWalk(req chat.StrayRequest, say func(chat.StrayLine) error) *walk {
	return &walk{req: req, say: say}
}

// all walks the mounts.
func (w *walk) all(mounts []sys.Mount) chat.StrayEnd {
	var err error
	for _, t := range w.openMounts(mounts) {
		w.mount = t.Path
		if err == nil {
			err = w.directory(os.NewFile(uintptr(t.fd), "."), "", 1)
		} else {
			_ = unix.Close(t.fd)
		}
	}
	end := chat.StrayEnd{Entries: w.entries, Unseen: w.unseen, Why: w.why}
	if err != nil {
		end.Error = err.Error()
	}
	return end
}

// directory looks at what is in the open directory f, which it closes, and walks the directories
// there: maxBelow at a time, in the order of their names.
func (w *walk) directory(f *os.File, path string, depth int) error {
	defer f.Close()
	at := []byte(filepath.Join(w.mount, path))
	w.at.Store(&at)
	for after := ""; ; {
		names, more, err := w.list(f, path, after)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := w.enter(f, path, name, depth); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		after = names[len(names)-1]
		if _, err := f.Seek(0, 0); err != nil {
			w.leaveOut(path, err)
			return nil
		}
	}
}

func (w *walk) enter(dir *os.File, path, name string, depth int) error {
	path = strings.TrimPrefix(path+"/"+name, "/")
	if depth == maxDepth {
		w.leaveOut(path, errDeep)
		return nil
	}
	fd, err := openBelow(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case err == unix.EXDEV || sys.Gone(err):
		return nil // a mount, or it was replaced meanwhile
	case err != nil:
		w.leaveOut(path, err)
		return nil
	}
	return w.directory(os.NewFile(uintptr(fd), "."), path, depth+1)
}

// list returns the first maxBelow directories of f whose names sort after one, sorted, and whether
// there are more. With an empty name it also reports the wanted files.
func (w *walk) list(f *os.File, path, after string) (dirs []string, more bool, err error) {
	finds := map[uint32]*chat.Stray{}
	for {
		names, err := f.Readdirnames(batch)
		if len(names) == 0 || err != nil {
			break // the end, or it was removed meanwhile
		}
		for _, name := range names {
			if name > after && w.look(f, path, name, finds) {
				dirs = append(dirs, name)
			}
		}
		if len(dirs) > 2*maxBelow {
			dirs, more = lowest(dirs), true
		}
	}
	if after == "" {
		for _, find := range finds {
			if err := w.say(chat.StrayLine{Find: find}); err != nil {
				return nil, false, fmt.Errorf("cannot report a file: %w", err)
			}
		}
	}
	more = more || len(dirs) > maxBelow
	return lowest(dirs), more, nil
}

// lowest are the first maxBelow names in their order.
func lowest(names []string) []string {
	slices.Sort(names)
	return names[:min(len(names), maxBelow)]
}

// look counts a file of a wanted uid, and reports whether it is a directory.
func (w *walk) look(dir *os.File, path, name string, finds map[uint32]*chat.Stray) (isDir bool) {
	w.entries++
	fd, err := openBelow(int(dir.Fd()), name, unix.O_PATH)
	if err != nil {
		if err != unix.EXDEV && !sys.Gone(err) {
			w.leaveOut(path, err)
		}
		return false
	}
	var st unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &st), unix.Close(fd))
	if err != nil {
		w.leaveOut(path, err)
		return false
	}
	if wanted(w.req.Spent, st.Uid) {
		w.count(finds, st.Uid, filepath.Join(w.mount, path, name))
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// wanted reports whether a uid is in one of the ranges.
func wanted(spent [][2]uint32, uid uint32) bool {
	_, found := slices.BinarySearchFunc(spent, uid, func(r [2]uint32, uid uint32) int {
		switch {
		case r[1] < uid:
			return -1
		case r[0] > uid:
			return 1
		}
		return 0
	})
	return found
}

// count counts a file of a uid in its directory.
func (w *walk) count(finds map[uint32]*chat.Stray, uid uint32, path string) {
	find := finds[uid]
	if find == nil {
		if len(finds) == maxOwners {
			return
		}
		first := []byte(path[:min(len(path), maxPath)])
		find = &chat.Stray{UID: uid, Mount: []byte(w.mount), First: first}
		finds[uid] = find
	}
	find.Files++
}

// leaveOut counts what is not looked at; the walk goes on.
func (w *walk) leaveOut(path string, why error) {
	if w.unseen++; w.why == "" {
		w.why = quoted(filepath.Join(w.mount, path)) + ": " + why.Error()
	}
}

// quoted is the beginning of a path, on one line.
func quoted(path string) string { return strconv.QuoteToASCII(path[:min(len(path), 200)]) }
