package enforce

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// watch keeps the rules for files that are made later. Two groups of fanotify(7) serve
// it: perm asks before anything on a session's mounts is opened, and names tells of
// files that are made and moved anywhere on their file systems.
//
// An open is judged by the name that the file has at that moment, by every name that it
// or a directory around it was moved away from, and by what was made under a denied
// name. Events about names come first: the kernel queues them while it holds the
// directory, and judge waits for the directory before it reads them.
//
// Who holds mu may hold asking next, and not the other way round.
type watch struct {
	permFD, namesFD int
	perm            *os.File      // the same, to wait for
	room            chan struct{} // of questions that are held
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
	maxBacklog int    // names of a session that wait; tests: fewer
	refused    refusals
}

// watchedSession is what is known of one session.
type watchedSession struct {
	session   *session
	walls     []*ruleWall // the rules that hold; while they change, both
	trees     []watchedTree
	denied    map[handle]wallClass
	before    map[handle]wallClass // what the first of two walls denied, while it goes
	journal   *os.File             // both maps, for a later worker
	moved     map[string][]string  // what a directory was called before, by what it was called then
	questions []question           // of who holds asking; the first is being answered
	backlog   backlog
	dirs      dirCache
	names     share
	opens     share
}

// watchedTree is a mount of the session: where it lies inside, and in its file system.
type watchedTree struct {
	*baseMount
	fsid string
	fd   int // open for reading, for handles
	root handle
}

// Bounds of what is remembered of one session; beyond them it ends.
const (
	maxDenied = 100_000
	maxMoved  = 100_000
	maxNames  = 64 // names that one file may have had
)

// permMask is what the kernel asks about, nameMask what it tells of.
const (
	permMask = unix.FAN_OPEN_PERM | unix.FAN_ONDIR
	nameMask = unix.FAN_CREATE | unix.FAN_RENAME | unix.FAN_ONDIR
)

// initWatch makes the two groups. The second needs Linux 5.17.
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
	}
}

// begin makes the rules hold beside those that held, before anything is covered.
func (w *watch) begin(k *session, wall *ruleWall, changed bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sessions[k.initProc.chat]
	if s == nil {
		s = &watchedSession{session: k, denied: map[handle]wallClass{}, moved: map[string][]string{}, names: share{divisor: namesShare}, opens: share{divisor: opensShare}}
		err := w.openJournal(s)
		if err == nil {
			err = w.markNames(s)
		}
		if err != nil {
			w.release(s)
			return err
		}
		w.sessions[k.initProc.chat] = s
	}
	s.walls = append(s.walls[:min(len(s.walls), 1)], wall)
	switch {
	case changed && s.before == nil:
		s.before, s.denied = s.denied, map[handle]wallClass{}
	case changed: // after rules that could not be raised: what they denied goes
		s.denied = map[handle]wallClass{}
	case s.before != nil: // likewise, and those before them hold on
		s.denied = maps.Clone(s.before)
	}
	return w.markOpens(s, k.bases)
}

// markNames has the kernel tell of names on the file systems that the session can write to.
func (w *watch) markNames(s *watchedSession) error {
	for _, b := range s.session.bases {
		fd, err := openBeneath(b.tree, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
		if err == unix.ENOTDIR {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", b.Path, err)
		}
		fsid, err := fsidOf(fd)
		if err == nil {
			t := newWatchedTree(b, fsid, fd)
			s.trees = append(s.trees, t)
			w.roots[t.root] = append(w.roots[t.root], sessionRoot{t, s})
			clear(w.owners) // what they see may lie in this one, too
			if !b.Writable {
				continue
			}
			if w.marked[fsid]++; w.marked[fsid] == 1 {
				err = unix.FanotifyMark(w.namesFD, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, nameMask, fd, "")
			}
		} else {
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("cannot watch names below %s: %w", b.Path, err)
		}
	}
	return nil
}

// markOpens has the kernel ask before something is opened on the session's mounts. The
// mounts are found by path in the session: nobody inside can move what is mounted.
func (w *watch) markOpens(s *watchedSession, bases []*baseMount) error {
	for _, b := range bases {
		if !s.walls[len(s.walls)-1].below(b.Path) {
			continue
		}
		if err := w.markOpen(s, b.Path); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cannot watch %s: %w", b.Path, err)
		}
	}
	return nil
}

func (w *watch) markOpen(s *watchedSession, p string) error {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := statFD(fd)
	if err != nil {
		return err
	}
	// Also one that is known: the kernel gives the ids of mounts again.
	w.assignMount(st.Mnt_id, s)
	return unix.FanotifyMark(w.permFD, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, permMask, unix.AT_FDCWD, p)
}

// markMask has the kernel ask before something is opened in a tree that is attached
// nowhere yet.
func (w *watch) markMask(id chat.ID, tree, procFD int) error {
	s := w.session(id)
	if s == nil {
		return fmt.Errorf("cannot watch a place of chat %s: its session is not watched", id)
	}
	if err := w.markFD(s, tree, procFD); err != nil {
		return fmt.Errorf("cannot watch a place before it is attached: %w", err)
	}
	return nil
}

// session is a session that is watched; nil if there is none.
func (w *watch) session(id chat.ID) *watchedSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[id]
}

// markFD has the kernel ask before something is opened on the mount that fd stands on. It
// is found in procFD: fanotify_mark(2) takes a name.
func (w *watch) markFD(s *watchedSession, fd, procFD int) error {
	st, err := statFD(fd)
	if err != nil {
		return err
	}
	w.assignMount(st.Mnt_id, s)
	err = unix.Fchdir(procFD)
	if err == nil {
		err = unix.FanotifyMark(w.permFD, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, permMask, unix.AT_FDCWD, strconv.Itoa(fd))
	}
	return errors.Join(err, unix.Chdir("/"))
}

// forget has opens by a mount that goes refused: a process that stands in it goes on to
// see it, but not what covers it, and its paths are not those of the session.
func (w *watch) forget(id uint64) { w.assignMount(id, nil) }

// settle makes the new rules hold alone, and watches the mounts that covering made. There may
// be many: other sessions go on meanwhile.
func (w *watch) settle(k *session, wall *ruleWall, root, procFD int) error {
	s := w.session(k.initProc.chat)
	for _, c := range k.masks {
		if c.class == wallClosed {
			continue
		}
		fd, err := openBeneath(root, strings.TrimPrefix(c.path, "/"), unix.O_PATH)
		if err != nil {
			continue // moved since: what it is on is watched
		}
		err = w.markFD(s, fd, procFD)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("cannot watch %s: %w", chat.Quote(c.path), err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.walls = []*ruleWall{wall}
	if s.before != nil {
		s.before = nil
		if err := w.rewrite(s); err != nil {
			return err
		}
	}
	return nil
}
