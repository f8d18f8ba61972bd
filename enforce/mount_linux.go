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

// baseMount is one of bubblewrap's mounts. tree is a detached copy of it alone, which shows the
// files below all mask mounts and submounts.
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

// maskMount is a mount of the enforcer in the session.
type maskMount struct {
	want
	id uint64
}

// errMoved means that a path is no longer the file that the walk found there.
var errMoved = errors.New("it was moved meanwhile")

// mounter mounts masks in a session. It runs on a thread in the session's mount namespace. It acts
// on descriptors whose inode it has compared, because the chat can move any name.
type mounter struct {
	root       int                   // the session's root
	procFD     int                   // this program's /proc/self/fd
	sources    maskPair              // what covers are copies of
	bases      map[string]*baseMount // by path
	exceptions bool                  // rules have exceptions: masks get room for them
	mark       func(tree int) error  // has opens in a tree judged, before anybody can reach it
	forget     func(id uint64)       // refuses opens by a mount that goes
	noSwap     bool                  // tests: a kernel before 6.5

	mounted []maskMount
	dropped map[uint64]maskMount // masks that go and are still mounted, by id
	stays   map[string]uint64    // the covers that stay, by path
	ours    map[uint64]bool      // both, by their ids
	now     map[uint64]sys.Mount
	owner   map[string]string // what a want lies in
	copies  map[string]int    // islands, copied before what is around them is covered
	later   []want            // what has to wait until old covers are gone
}

// apply makes the session's masks those of wants, which [nest] has sorted; now has the session's
// mounts by id. It keeps the masks that are still wanted. It adds new masks before it removes old
// ones, so that no denied path is unmasked in between.
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

// divide separates the masks that stay from those that go. A mask that is no longer mounted is in
// neither group: its file was replaced. A mask whose file was moved counts at its new path. A mask
// inside one that goes also goes.
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

// inPlace reports whether an old mask has the parent that a new mask of its path would get: the
// mask around it that stays, or a mount of bubblewrap's. Other old masks of the same path may lie
// in between.
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

// owners maps each of the sorted wants to the nearest other want around it.
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

// openMask opens the root of a mask. It returns -1 if the mask is gone or another mount covers it.
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

// unmountDropped unmounts the masks that go and can be reached. It begins with the outer ones: the
// masks inside are unmounted with them and are never visible on their own. A mask below another
// one stays, because a process whose working directory is there must not see more than before.
func (m *mounter) unmountDropped() error {
	all := slices.SortedFunc(maps.Values(m.dropped), func(a, b maskMount) int { return sys.ComparePaths(a.path, b.path) })
	for again := true; again; { // an unmount can uncover another mask that goes
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
			sys.Failpoint("mount.removed")
		}
		all = slices.DeleteFunc(all, func(c maskMount) bool { return c.path == "" })
	}
	return nil
}

// freezeExceptions makes the exceptions that go read-only. A process whose working directory is in
// one keeps that mount after the unmount (umount2(2), MNT_DETACH), without the masks inside. Opens
// through it are refused, since its mount id is then unknown, but removals and moves are not. Best
// effort: the kernel refuses while a file there is open for writing.
func (m *mounter) freezeExceptions() {
	for id, c := range m.dropped {
		if c.class != wallOpen {
			continue
		}
		if fd := m.openMask(c); fd >= 0 {
			if setReadOnly(fd, true) == nil {
				c.class = wallReadOnly // so that it never equals a want
				m.dropped[id] = c
			}
			unix.Close(fd)
		}
	}
}

// unmount unmounts the mount whose root is fd. A mount that is already gone is no error (EINVAL):
// the kernel unmounts a mask when its mount point is removed.
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
