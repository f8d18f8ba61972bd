package masks

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// newMask is a mask that this apply mounted, and inside which further masks are mounted.
type newMask struct {
	path string
	tree int
	// exception: it is to be open, and is read-only until the masks inside it are mounted.
	exception bool
}

// mountAll mounts the missing masks of sorted wants, each before those inside it: in a new mask, or
// from the session's root. In a new mask all are missing.
func (m *Mounter) mountAll(wants []pathclass.Place, in *newMask) error {
	for len(wants) > 0 {
		n := subtree(wants)
		w, inside := wants[0], wants[1:n]
		wants = wants[n:]
		var err error
		if _, stays := m.stays[w.Path]; stays {
			err = m.mountAll(inside, in)
		} else if err = m.mount(w, inside, in); errors.Is(err, errHidden) && in == nil {
			m.later, err = append(append(m.later, w), inside...), nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subtree is how many of sorted wants lie at or below the first.
func subtree(wants []pathclass.Place) int {
	n := 1
	for n < len(wants) && chat.Within(wants[n].Path, wants[0].Path) {
		n++
	}
	return n
}

// mount masks one path and then the paths inside it.
func (m *Mounter) mount(w pathclass.Place, inside []pathclass.Place, in *newMask) error {
	l, err := m.mountMask(w, inside, in)
	if sys.Gone(err) || errors.Is(err, unix.EINVAL) { // EINVAL: the mount around target is detached
		err = ErrMoved
	}
	if err != nil {
		return fmt.Errorf("cannot mask %s: %w", chat.Quote(w.Path), err)
	}
	defer unix.Close(l.tree)
	if err := m.mountAll(inside, l); err != nil {
		return err
	}
	if l.exception {
		if err := setReadOnly(l.tree, false); err != nil {
			return fmt.Errorf("cannot open %s: %w", chat.Quote(w.Path), err)
		}
	}
	return nil
}

// mountMask masks one path, after it has copied the exceptions inside.
func (m *Mounter) mountMask(w pathclass.Place, inside []pathclass.Place, in *newMask) (*newMask, error) {
	target, old, err := m.target(w, in)
	if err != nil {
		return nil, err
	}
	defer unix.Close(target)
	if in == nil { // the outermost call copies all exceptions, also the nested ones
		for _, i := range inside {
			if err := m.copyException(i); err != nil {
				return nil, err
			}
		}
	}
	l := &newMask{path: w.Path}
	if l.tree, err = m.treeOf(w, target, old, inside); err != nil {
		return nil, err
	}
	if w.Class == filerules.Open && len(inside) > 0 {
		l.exception, err = true, setReadOnly(l.tree, true)
	}
	if err == nil && w.Class != filerules.Closed {
		err = m.Mark(l.tree)
	}
	if err == nil {
		sys.Failpoint("mount.marked")
		err = m.attach(l.tree, target, old)
	}
	var st unix.Statx_t
	if err == nil {
		st, err = sys.StatFD(l.tree)
	}
	if err != nil {
		unix.Close(l.tree)
		return nil, err
	}
	m.Mounted = append(m.Mounted, Mount{w, st.Mnt_id})
	sys.Failpoint("mount.applied")
	return l, nil
}

// attach mounts tree over target, or replaces an old mask. It replaces by mounting below the old
// mask, which is unmounted later, so that one of both is visible at any time. A kernel before 6.5
// cannot mount below, and none can at the root of a session. There the new mask goes over the old
// one, which stays below it.
func (m *Mounter) attach(tree, target int, old *Mount) error {
	if old == nil {
		return moveMount(tree, target, 0)
	}
	err := error(unix.EINVAL)
	if !m.NoSwap {
		err = moveMount(tree, target, moveBeneath)
	}
	if errors.Is(err, unix.EINVAL) {
		n := 0
		for _, c := range m.Dropped {
			if c.Path == old.Path {
				n++
			}
		}
		if n >= maxStacked {
			return errHidden
		}
		delete(m.Dropped, old.ID) // unmounting it would unmount the new mask too
		return moveMount(tree, target, 0)
	}
	return err
}

// maxStacked bounds the old masks below one mask, where the kernel cannot mount below. Beyond the
// bound all of them are unmounted before the next mask is mounted.
const maxStacked = 16

// copyException copies the tree of an exception, or of a submount that must stay visible.
func (m *Mounter) copyException(i pathclass.Place) error {
	if !i.IsException() && !(i.Base && i.Class != filerules.Closed) {
		return nil
	}
	tree, err := m.copyOf(i)
	if err == nil {
		m.copies[i.Path] = tree
	}
	return err
}

// copyOf returns the copy of a place that was made before, or makes one.
func (m *Mounter) copyOf(w pathclass.Place) (int, error) {
	if tree, ok := m.copies[w.Path]; ok {
		delete(m.copies, w.Path)
		return tree, nil
	}
	fd, err := m.source(w)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openTree(fd)
}

// treeOf returns the detached tree that masks w. It has w's file alone: package pathclass adds each
// submount as a place of its own, so that each is watched.
func (m *Mounter) treeOf(
	w pathclass.Place, target int, old *Mount, inside []pathclass.Place,
) (tree int, err error) {
	shown := w.Class != filerules.Closed
	switch {
	case shown && (w.IsException() || w.Base || old != nil):
		tree, err = m.copyOf(w)
	case shown:
		tree, err = openTree(target)
	case w.Dir && (m.Exceptions || slices.ContainsFunc(inside, pathclass.Place.NeedsMountPoint)):
		return m.roomyMask(w, inside)
	default:
		err = sys.InOwnNamespace(func() (err error) {
			tree, err = openTree(m.Sources[w.Dir])
			return err
		})
	}
	if err == nil && w.Class == filerules.ReadOnly {
		if err = setReadOnly(tree, true); err != nil {
			unix.Close(tree)
		}
	}
	return tree, err
}

// roomyMask returns a mask of a closed directory that has, or can get, mount points for exceptions.
func (m *Mounter) roomyMask(w pathclass.Place, inside []pathclass.Place) (int, error) {
	tree, err := newTmpfs()
	if err != nil {
		return -1, err
	}
	var places []pathclass.Place
	for _, i := range inside {
		if i.NeedsMountPoint() && m.owner[i.Path] == w.Path {
			places = append(places, i)
		}
	}
	if len(places) > 0 {
		err = makeMountPoints(tree, w.Path, places)
	}
	if err == nil {
		err = setReadOnly(tree, true)
	}
	if err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}
