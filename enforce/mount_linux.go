package enforce

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// baseMount is a mount of bubblewrap's; tree is it alone, attached nowhere, so that
// nothing that covers it or is mounted in it is seen there.
type baseMount struct {
	sys.Mount
	tree    int
	top     int // its root, in the session (O_PATH)
	handles int // the same, for open_by_handle_at(2); -1 if there is none
	dir     bool
	inode   inode
}

func (b *baseMount) close() {
	for _, fd := range []int{b.tree, b.top, b.handles} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// maskMount is a mount of ours that is in the session.
type maskMount struct {
	want
	id uint64
}

// errMoved is a place that is not what was looked at: somebody moved it meanwhile.
var errMoved = errors.New("it was moved meanwhile")

// mounter puts covers into a session. It acts on a thread in the session's mount
// namespace, on what it opened and looked at, never on a name alone.
type mounter struct {
	root       int                   // the session's root
	procFD     int                   // this program's /proc/self/fd
	sources    maskPair              // what covers are copies of
	bases      map[string]*baseMount // by path
	exceptions bool                  // islands may come later: closed directories have room for them
	mark       func(tree int) error  // has opens in a tree judged, before anybody can reach it
	forget     func(id uint64)       // refuses opens by a mount that goes
	noSwap     bool                  // tests: a kernel before 6.5

	mounted []maskMount
	dropped map[uint64]maskMount // what is not wanted and still there, by its id; then what is left of it
	stays   map[string]uint64    // the covers that stay, by path
	ours    map[uint64]bool      // both, by their ids
	now     map[uint64]sys.Mount
	owner   map[string]string // what a want lies in
	copies  map[string]int    // islands, copied before what is around them is covered
	later   []want            // what has to wait until old covers are gone
}

// apply brings the session's covers to wants, which fit in each other; now is what is
// mounted in the session, by id. What is there and wanted stays. What is new comes before
// what is old goes, so that nothing is without a cover between.
func (m *mounter) apply(wants []want, now map[uint64]sys.Mount) error {
	m.copies, m.later = map[string]int{}, nil
	defer func() {
		for _, fd := range m.copies {
			unix.Close(fd)
		}
	}()
	m.divide(wants, now)
	m.freezeExceptions()
	if err := m.mountAll(wants, nil); err != nil {
		return err
	}
	if err := m.unmountDropped(); err != nil {
		return err
	}
	if m.later == nil {
		return nil
	}
	left := m.dropped
	m.dropped = nil
	defer func() { m.dropped = left }()
	later := m.later
	slices.SortFunc(later, byPath)
	err := m.mountAll(later, nil)
	if errors.Is(err, errHidden) {
		return errMoved
	}
	return err
}

// divide tells the covers that stay from those that go. A cover that is not mounted any
// more, where the file was replaced, is neither. One that was moved with what it is on
// is one of its new place. What lies in one that goes, goes.
func (m *mounter) divide(wants []want, now map[uint64]sys.Mount) {
	m.now, m.owner, m.stays, m.ours = now, owners(wants), map[string]uint64{}, map[uint64]bool{}
	wanted := make(map[string]want, len(wants))
	for _, w := range wants {
		wanted[w.path] = w
	}
	all := m.mounted
	m.mounted, m.dropped = nil, map[uint64]maskMount{}
	for i, c := range all {
		all[i].path = now[c.id].Path
		m.dropped[c.id], m.ours[c.id] = all[i], true
	}
	slices.SortStableFunc(all, func(a, b maskMount) int { return sys.ComparePaths(a.path, b.path) })
	for _, c := range all {
		w, ok := wanted[c.path]
		_, twice := m.stays[c.path]
		switch {
		case c.path == "": // not mounted
			delete(m.dropped, c.id)
		case ok && w == c.want && !twice && m.inPlace(c):
			m.stays[c.path] = c.id
			m.mounted = append(m.mounted, c)
			delete(m.dropped, c.id)
		}
	}
}

// inPlace reports whether an old cover is on what a new one of its path is to be on: the
// cover that stays of what is around it, or a mount that is not ours. Between may be
// others of the same place.
func (m *mounter) inPlace(c maskMount) bool {
	on := uint64(m.now[c.id].Parent)
	for m.now[on].Path == c.path {
		if _, ours := m.dropped[on]; !ours {
			break
		}
		on = uint64(m.now[on].Parent)
	}
	if owner := m.owner[c.path]; owner != "" {
		return m.stays[owner] == on && on != 0
	}
	return !m.ours[on]
}

// owners says what each of sorted wants lies in: the next other one around it.
func owners(wants []want) map[string]string {
	all := make(map[string]string, len(wants))
	var around []string
	for _, w := range wants {
		for len(around) > 0 && !under(w.path, around[len(around)-1]) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			all[w.path] = around[len(around)-1]
		}
		around = append(around, w.path)
	}
	return all
}

// openMask opens the root of a cover; -1 if another is over it, or it is gone.
func (m *mounter) openMask(c maskMount) int {
	fd, err := openBeneath(m.root, strings.TrimPrefix(c.path, "/"), unix.O_PATH)
	if err != nil {
		return -1
	}
	if st, err := statFD(fd); err != nil || st.Mnt_id != c.id {
		unix.Close(fd)
		return -1
	}
	return fd
}

// unmountDropped takes the covers away that go and can be reached, the outer ones first: what
// lies in them goes with them, and is never there without them. What another cover lies
// over stays: who stands below that one must not get further than before.
func (m *mounter) unmountDropped() error {
	all := slices.SortedFunc(maps.Values(m.dropped), func(a, b maskMount) int { return sys.ComparePaths(a.path, b.path) })
	for again := true; again; { // what comes to light may be one of them
		again = false
		for i, c := range all {
			fd := m.openMask(c)
			if fd < 0 {
				continue
			}
			m.forget(c.id)
			err := m.unmount(fd)
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("cannot uncover %s: %w", chat.Quote(c.path), err)
			}
			all[i].path, again = "", true
			delete(m.dropped, c.id)
		}
		all = slices.DeleteFunc(all, func(c maskMount) bool { return c.path == "" })
	}
	return nil
}

// freezeExceptions lets nothing be changed through the islands that go: who stands in one, or is on
// the way there, stays in it, also when what covers something in it is gone (umount2(2),
// MNT_DETACH). Opens through it are refused, for nobody knows its mount any more. Best
// effort: the kernel refuses while somebody has a file of it open to write.
func (m *mounter) freezeExceptions() {
	for id, c := range m.dropped {
		if c.class != wallOpen {
			continue
		}
		if fd := m.openMask(c); fd >= 0 {
			if setReadOnly(fd, true) == nil {
				c.class = wallReadOnly // so it is never one that is wanted
				m.dropped[id] = c
			}
			unix.Close(fd)
		}
	}
}

// unmount takes the mount away that fd is the root of. One that is not there any more,
// because somebody removed what it was on, is none (EINVAL).
func (m *mounter) unmount(fd int) error {
	if err := unix.Fchdir(m.procFD); err != nil {
		return err
	}
	err := unix.Unmount(strconv.Itoa(fd), unix.MNT_DETACH)
	if err == unix.EINVAL {
		err = nil
	}
	return errors.Join(err, unix.Chdir("/"))
}
