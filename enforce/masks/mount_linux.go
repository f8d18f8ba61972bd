package masks

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// Mount is a mount of the enforcer in the session.
type Mount struct {
	pathclass.Place
	ID uint64
}

// ErrMoved means that a path is no longer the file that the walk found there.
var ErrMoved = errors.New("it was moved meanwhile")

// Mounter mounts masks in a session. It runs on a thread in the session's mount namespace. It acts
// on descriptors whose inode it has compared, because the chat can move any name.
type Mounter struct {
	Root       int                  // the session's root
	ProcFD     int                  // this program's /proc/self/fd
	Sources    Sources              // what masks are copies of
	Bases      []*pathclass.Base    // sorted
	Exceptions bool                 // rules have exceptions: masks get room for them
	Mark       func(tree int) error // requests checks of opens in a tree that nobody reaches yet
	Forget     func(id uint64)      // refuses opens by a mount that goes
	NoSwap     bool                 // tests: a kernel before 6.5

	// Mounted are the masks: those there are before [Mounter.Apply], and those there are after.
	Mounted []Mount
	Dropped map[uint64]Mount // masks that go and are still mounted, by id

	stays  map[string]uint64 // the masks that stay, by path
	ours   map[uint64]bool   // they and those that go, by their ids
	now    map[uint64]sys.Mount
	owner  map[string]string // what a want lies in
	copies map[string]int    // exceptions, copied before what is around them is masked
	later  []pathclass.Place // what has to wait until old masks are gone
}

// Apply makes the session's masks those of wants, in the order in which a pathclass.Walker leaves
// them; now has the session's mounts by id. It keeps the masks that are still wanted. It adds new
// masks before it removes old ones, so that no denied path is unmasked in between.
func (m *Mounter) Apply(wants []pathclass.Place, now map[uint64]sys.Mount) error {
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
	left := m.Dropped
	m.Dropped = nil
	defer func() { m.Dropped = left }()
	later := m.later
	slices.SortFunc(later, pathclass.ByPath)
	err := m.mountAll(later, nil)
	if errors.Is(err, errHidden) {
		return ErrMoved
	}
	return err
}

// divide separates the masks that stay from those that go. A mask that is no longer mounted is in
// neither group: its file was replaced. A mask whose file was moved counts at its new path. A mask
// inside one that goes also goes.
func (m *Mounter) divide(wants []pathclass.Place, now map[uint64]sys.Mount) {
	m.now, m.owner, m.stays, m.ours = now, owners(wants), map[string]uint64{}, map[uint64]bool{}
	wanted := make(map[string]pathclass.Place, len(wants))
	for _, w := range wants {
		wanted[w.Path] = w
	}
	all := m.Mounted
	m.Mounted, m.Dropped = nil, map[uint64]Mount{}
	for i, c := range all {
		all[i].Path = now[c.ID].Path
		m.Dropped[c.ID], m.ours[c.ID] = all[i], true
	}
	slices.SortStableFunc(all, func(a, b Mount) int { return sys.ComparePaths(a.Path, b.Path) })
	for _, c := range all {
		w, ok := wanted[c.Path]
		_, twice := m.stays[c.Path]
		switch {
		case c.Path == "": // not mounted
			delete(m.Dropped, c.ID)
		case ok && w == c.Place && !twice && m.inPlace(c):
			m.stays[c.Path] = c.ID
			m.Mounted = append(m.Mounted, c)
			delete(m.Dropped, c.ID)
		}
	}
}

// inPlace reports whether an old mask has the parent that a new mask of its path would get: the
// mask around it that stays, or a mount of bubblewrap's. Other old masks of the same path may lie
// in between.
func (m *Mounter) inPlace(c Mount) bool {
	on := uint64(m.now[c.ID].Parent)
	for m.now[on].Path == c.Path {
		if _, ours := m.Dropped[on]; !ours {
			break
		}
		on = uint64(m.now[on].Parent)
	}
	if owner := m.owner[c.Path]; owner != "" {
		return m.stays[owner] == on && on != 0
	}
	return !m.ours[on]
}

// owners maps each of the sorted wants to the nearest other want around it.
func owners(wants []pathclass.Place) map[string]string {
	all := make(map[string]string, len(wants))
	var around []string
	for _, w := range wants {
		for len(around) > 0 && !chat.Within(w.Path, around[len(around)-1]) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			all[w.Path] = around[len(around)-1]
		}
		around = append(around, w.Path)
	}
	return all
}

// openMask opens the root of a mask. It returns -1 if the mask is gone or another mount hides it.
func (m *Mounter) openMask(c Mount) int {
	fd, st, err := sys.OpenPath(m.Root, c.Path)
	if err != nil {
		return -1
	}
	if st.Mnt_id != c.ID {
		unix.Close(fd)
		return -1
	}
	return fd
}

// unmountDropped unmounts the masks that go and can be reached. It begins with the outer ones: the
// masks inside are unmounted with them and are never visible on their own. A mask below another
// one stays, because a process whose working directory is there must not see more than before.
func (m *Mounter) unmountDropped() error {
	all := slices.SortedFunc(maps.Values(m.Dropped), func(a, b Mount) int {
		return sys.ComparePaths(a.Path, b.Path)
	})
	for again := true; again; { // an unmount can expose another mask that goes
		again = false
		for i, c := range all {
			fd := m.openMask(c)
			if fd < 0 {
				continue
			}
			m.Forget(c.ID)
			err := m.unmount(fd)
			unix.Close(fd)
			if err != nil {
				return fmt.Errorf("cannot unmask %s: %w", chat.Quote(c.Path), err)
			}
			all[i].Path, again = "", true
			delete(m.Dropped, c.ID)
			sys.Failpoint("mount.removed")
		}
		all = slices.DeleteFunc(all, func(c Mount) bool { return c.Path == "" })
	}
	return nil
}

// freezeExceptions makes the exceptions that go read-only. A process whose working directory is in
// one keeps that mount after the unmount (umount2(2), MNT_DETACH), without the masks inside. Opens
// through it are refused, since its mount id is then unknown, but removals and moves are not. Best
// effort: the kernel refuses while a file there is open for writing.
func (m *Mounter) freezeExceptions() {
	for id, c := range m.Dropped {
		if c.Class != filerules.Open {
			continue
		}
		if fd := m.openMask(c); fd >= 0 {
			if setReadOnly(fd, true) == nil {
				c.Class = filerules.ReadOnly // so that it never equals a want
				m.Dropped[id] = c
			}
			unix.Close(fd)
		}
	}
}

// unmount unmounts the mount whose root is fd. A mount that is already gone is not an error (EINVAL):
// the kernel unmounts a mask when its mount point is removed.
func (m *Mounter) unmount(fd int) error {
	if err := unix.Fchdir(m.ProcFD); err != nil {
		return err
	}
	err := unix.Unmount(strconv.Itoa(fd), unix.MNT_DETACH)
	if err == unix.EINVAL {
		err = nil
	}
	return errors.Join(err, unix.Chdir("/"))
}
