package enforce

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// watch enforces the rules for files that are made later, with two groups of fanotify(7). Group
// perm asks before each open on a session's mounts. Group names reports the files that are created
// or moved anywhere on their file systems.
//
// An open is checked against the present name of the file, every earlier name of the file or of a
// directory around it, and the denied names that the file ever had. The name events of a directory
// are read first: the kernel queues them under the directory's lock, and [watch.locate] waits for
// that lock.
//
// Lock order: mu, then asking.
type watch struct {
	permFD, namesFD int
	procFD          int           // this program's /proc/self/fd
	perm            *os.File      // the same, to wait for
	room            chan struct{} // bounds the unanswered questions
	failed          chan error

	asking  sync.Mutex // held by nobody for long
	byMount map[uint64]*watchedSession

	mu         sync.Mutex
	sessions   map[chat.ID]*watchedSession
	marked     map[string]int               // file systems in names, and how many sessions are on them
	owners     map[handle][]*watchedSession // who sees a directory
	roots      map[handle][]sessionRoot     // the trees of the sessions, by their roots
	turns      []*watchedSession            // who has made something that nobody has looked at
	waiting    chan struct{}                // tells of the first of them
	buf        []byte                       // for events about names
	recheck    func(chat.ID)                // asks for a new look at a session
	end        func(*session, error)
	dir        string // of the journals
	blind      bool   // tests: every open passes
	noNames    bool   // tests: as on a file system whose names are not reported
	maxBacklog int    // names of a session that wait; tests: fewer
	refused    refusals
}

// watchedSession is the state of one session's watch.
type watchedSession struct {
	session   *session
	walls     []*pathclass.Wall // the rules that hold; while they change, both
	trees     []watchedTree
	denied    map[handle]denial
	before    map[handle]denial   // what the first of two walls denied, while it goes
	journal   *os.File            // both maps, for a later worker
	moved     map[string][]string // what a directory was called before, by what it was called then
	questions []question          // of who holds asking; the first is being answered
	backlog   backlog
	dirs      dirCache
	names     share
	opens     share
}

// watchedTree is one of the session's mounts that is watched.
type watchedTree struct {
	*pathclass.Base
	fsid string
	fd   int // open for reading, for handles
	root handle
}

// Bounds of the records of one session. A session that exceeds them ends.
const (
	maxDenied = 100_000
	maxMoved  = 100_000
	maxNames  = 64 // names that one file may have had
)

// permMask has the events that need an answer, nameMask those about names.
const (
	permMask = unix.FAN_OPEN_PERM | unix.FAN_ONDIR
	nameMask = unix.FAN_CREATE | unix.FAN_RENAME | unix.FAN_ONDIR
)

// initWatch creates the two groups. The second needs Linux 5.17.
func initWatch() (perm, names int, err error) {
	perm, err = unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_UNLIMITED_QUEUE|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_LARGEFILE|unix.O_CLOEXEC|unix.O_NOATIME)
	if err != nil {
		return -1, -1, fmt.Errorf("cannot watch opens (fanotify_init): %w", err)
	}
	names, err = unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_DFID_NAME_TARGET|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|
		unix.FAN_UNLIMITED_QUEUE|unix.FAN_UNLIMITED_MARKS, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		unix.Close(perm)
		return -1, -1, fmt.Errorf("cannot watch names (fanotify_init with FAN_REPORT_TARGET_FID, Linux 5.17): %w", err)
	}
	return perm, names, nil
}

func newWatch(perm, names int) *watch {
	return &watch{
		permFD: perm, namesFD: names, perm: os.NewFile(uintptr(perm), "perm"),
		room: make(chan struct{}, maxQuestions), failed: make(chan error, 1),
		maxBacklog: maxEvents, waiting: make(chan struct{}, 1), buf: make([]byte, 64<<10),
		byMount: map[uint64]*watchedSession{}, sessions: map[chat.ID]*watchedSession{},
		marked: map[string]int{}, owners: map[handle][]*watchedSession{}, roots: map[handle][]sessionRoot{},
		refused: refusals{chats: map[chat.ID]*orders.Refusals{}},
	}
}

// begin checks opens against the new rules too, beside the old ones, before any mask is mounted.
func (w *watch) begin(k *session, wall *pathclass.Wall, changed bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[k.initProc.chat]
	if s == nil {
		s = &watchedSession{
			session: k, denied: map[handle]denial{}, moved: map[string][]string{},
			names: share{divisor: namesShare}, opens: share{divisor: opensShare},
		}
		err := w.openJournal(s)
		sys.Failpoint("rules.journal")
		if err == nil {
			err = w.markNames(s)
		}
		if err != nil {
			w.release(s)
			return err
		}
		w.sessions[k.initProc.chat], k.watched = s, s
	}
	s.walls = append(s.walls[:min(len(s.walls), 1)], wall)
	switch {
	case changed && s.before == nil:
		s.before, s.denied = s.denied, map[handle]denial{}
	case changed: // the last rules could not be applied: drop what they denied
		s.denied = map[handle]denial{}
	case s.before != nil: // likewise, but the rules before them still apply
		s.denied = maps.Clone(s.before)
	}
	return w.markOpens(s, k.bases)
}

// markNames subscribes to name events on the file systems that the session can write to. Where the
// kernel reports no names, closed files get masks.
func (w *watch) markNames(s *watchedSession) error {
	for _, b := range s.session.bases {
		fd, err := sys.OpenBeneath(b.Tree, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
		if err == unix.ENOTDIR {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", b.Path, err)
		}
		fsid, err := fsidOf(fd)
		if err != nil {
			return errors.Join(fmt.Errorf("cannot watch names below %s: %w", b.Path, err), unix.Close(fd))
		}
		t := newWatchedTree(b, fsid, fd)
		s.trees = append(s.trees, t)
		w.roots[t.root] = append(w.roots[t.root], sessionRoot{t, s})
		clear(w.owners) // what they see may lie in this one, too
		if !b.Writable || w.noNames {
			continue
		}
		if w.marked[fsid] == 0 {
			err = unix.FanotifyMark(w.namesFD, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, nameMask, fd, "")
		}
		switch err {
		case nil:
			b.Watched = true
			w.marked[fsid]++
		case unix.EOPNOTSUPP, unix.EXDEV, unix.ENODEV:
			// Overlayfs has no handles that can be decoded, and a btrfs subvolume before Linux 6.8 no
			// id of its own.
		default:
			return fmt.Errorf("cannot watch names below %s: %w", b.Path, err)
		}
	}
	return nil
}

// markOpens makes the kernel ask before each open on the session's mounts.
func (w *watch) markOpens(s *watchedSession, bases []*pathclass.Base) error {
	for _, b := range bases {
		if !s.walls[len(s.walls)-1].Below(b.Path) {
			continue
		}
		if err := w.markFD(s, b.Top); err != nil {
			return fmt.Errorf("cannot watch %s: %w", b.Path, err)
		}
	}
	return nil
}

// markFD makes the kernel ask before each open on fd's mount. fanotify_mark(2) takes a path, so
// markFD names the descriptor through procFD.
func (w *watch) markFD(s *watchedSession, fd int) error {
	st, err := sys.StatFD(fd)
	if err != nil {
		return err
	}
	w.assignMount(st.Mnt_id, s) // also if the id is known: the kernel reuses ids of mounts
	err = unix.Fchdir(w.procFD)
	if err == nil {
		err = unix.FanotifyMark(w.permFD, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, permMask, unix.AT_FDCWD,
			strconv.Itoa(fd))
	}
	return errors.Join(err, unix.Chdir("/"))
}

// forget refuses further opens through a mount that is being removed. A process whose working
// directory is there still sees the mount, without the new masks.
func (w *watch) forget(id uint64) { w.assignMount(id, nil) }

// switchRules ends the old rules and watches the new mounts. It marks them without the lock, since there
// may be many and other sessions must not wait.
func (w *watch) switchRules(k *session, wall *pathclass.Wall, root int) error {
	s := k.watched
	for _, c := range k.masks {
		if c.Class == filerules.Closed {
			continue
		}
		fd, _, err := sys.OpenPath(root, c.Path)
		if err != nil {
			continue // moved since: the mount below is watched
		}
		err = w.markFD(s, fd)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", chat.Quote(c.Path), err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.walls = []*pathclass.Wall{wall}
	if s.before != nil {
		s.before = nil
		if err := w.rewrite(s); err != nil {
			return err
		}
	}
	return nil
}
