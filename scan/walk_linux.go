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
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

const (
	// batch is how many names are looked at before the walk rests, for restFactor times as long.
	batch      = 256
	restFactor = 9
	// maxRest bounds one rest: a disk that was slow once is not the next time. It rests after
	// minWork at the earliest: most directories are small.
	maxRest = 5 * time.Second
	minWork = time.Millisecond
)

var (
	// errStop ends a turn that has used up its bounds.
	errStop = errors.New("the turn is over")

	errDeep = fmt.Errorf("it lies below %d directories", maxDepth)
	errMany = fmt.Errorf("there are more than %d file systems", maxMounts)
)

// walk is one turn.
type walk struct {
	req     Request
	say     func(Line) error
	at      atomic.Pointer[Position] // the directory that it is in
	mount   string
	entries int
	began   time.Time // of the work since the last rest
	until   time.Time
	unseen  int
	why     string
}

func newWalk(req Request, say func(Line) error) *walk {
	now := time.Now()
	until := now.Add(time.Duration(req.Seconds) * time.Second)
	w := &walk{req: req, say: say, began: now, until: until}
	w.at.Store(req.From)
	return w
}

// all walks the mounts from the position on.
func (w *walk) all(mounts []sys.Mount) End {
	err := w.tops(w.openMounts(mounts))
	end := End{Complete: err == nil, Entries: w.entries, Unseen: w.unseen, Why: w.why}
	switch {
	case errors.Is(err, errStop):
		end.At = w.at.Load()
	case err != nil:
		end.At, end.Error = w.at.Load(), err.Error()
	}
	return end
}

func (w *walk) tops(tops []top) error {
	for _, t := range tops {
		var below []string
		if from := w.req.From; from != nil && t.Path <= string(from.Mount) {
			if t.Path < string(from.Mount) || from.Beyond && len(from.Path) == 0 {
				_ = unix.Close(t.fd)
				continue
			}
			if len(from.Path) > 0 {
				below = strings.Split(string(from.Path), "/")
			}
		}
		w.mount = t.Path
		if err := w.directory(t.fd, "", 1, below); err != nil {
			return err
		}
	}
	return nil
}

// directory looks at what is in the open directory fd, which it closes, and walks the directories
// there. from are the names on the way to where the last turn stopped: that one has looked at this
// directory and at what sorts before.
func (w *walk) directory(fd int, path string, depth int, from []string) error {
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	least, beyond, looked := "", false, len(from) > 0
	if looked {
		least, beyond = from[0], w.req.From.Beyond && len(from) == 1
		from = from[1:]
	} else {
		w.at.Store(&Position{Mount: []byte(w.mount), Path: []byte(path)})
	}
	for first := true; ; first = false {
		names, more, err := w.list(f, path, least, beyond, looked)
		if err != nil {
			return err
		}
		for _, name := range names {
			below := from
			if !first || name != least {
				below = nil
			}
			if err := w.enter(f, path, name, depth, below); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		least, beyond, looked = names[len(names)-1], true, true
		if _, err := f.Seek(0, 0); err != nil {
			w.leaveOut(path, err)
			return nil
		}
	}
}

func (w *walk) enter(dir *os.File, path, name string, depth int, from []string) error {
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
	return w.directory(fd, path, depth+1, from)
}

// list looks at the names of a directory from least on, or beyond it, and returns the first
// maxBelow directories among them, sorted. more: there are others. looked: what is no directory was
// told before.
func (w *walk) list(f *os.File, path, least string, beyond, looked bool) (
	dirs []string, more bool, err error,
) {
	finds := map[uint32]*Find{}
	for {
		names, err := f.Readdirnames(batch)
		if len(names) == 0 || err != nil {
			break // the end, or it was removed meanwhile
		}
		for _, name := range names {
			if name < least || beyond && name == least {
				continue
			}
			isDir, err := w.look(f, path, name, finds)
			if err != nil {
				return nil, false, err
			}
			if isDir {
				dirs = append(dirs, name)
			}
		}
		if len(dirs) > 2*maxBelow {
			dirs, more = lowest(dirs), true
		}
		w.rest()
	}
	if !looked {
		for _, find := range finds {
			if err := w.say(Line{Find: find}); err != nil {
				return nil, false, err
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

// look notes a file of a wanted uid, and reports whether it is a directory.
func (w *walk) look(
	dir *os.File, path, name string, finds map[uint32]*Find,
) (isDir bool, err error) {
	if w.entries++; w.entries > w.req.Entries || time.Now().After(w.until) {
		return false, errStop
	}
	fd, err := openBelow(int(dir.Fd()), name, unix.O_PATH)
	if err != nil {
		if err != unix.EXDEV && !sys.Gone(err) {
			w.leaveOut(path, err)
		}
		return false, nil
	}
	var st unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &st), unix.Close(fd))
	if err != nil {
		w.leaveOut(path, err)
		return false, nil
	}
	if wanted(w.req.Spent, st.Uid) {
		w.note(finds, st.Uid, filepath.Join(w.mount, path, name))
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// note counts a file of a uid in its directory.
func (w *walk) note(finds map[uint32]*Find, uid uint32, path string) {
	find := finds[uid]
	if find == nil {
		if len(finds) == maxOwners {
			return
		}
		first := []byte(path[:min(len(path), maxPath)])
		find = &Find{UID: uid, Mount: []byte(w.mount), First: first}
		finds[uid] = find
	}
	find.Files++
}

// rest waits so that the walk works for a tenth of the time.
func (w *walk) rest() {
	if worked := time.Since(w.began); worked >= minWork {
		time.Sleep(min(restFactor*worked, maxRest))
		w.began = time.Now()
	}
}

// leaveOut counts what is not looked at; the walk goes on.
func (w *walk) leaveOut(path string, why error) {
	if w.unseen++; w.why == "" {
		w.why = w.name(path) + ": " + why.Error()
	}
}

// name is the path in a mount, for an error.
func (w *walk) name(path string) string { return quoted(filepath.Join(w.mount, path)) }

// quoted is the beginning of a path, on one line.
func quoted(path string) string { return strconv.QuoteToASCII(path[:min(len(path), 200)]) }
