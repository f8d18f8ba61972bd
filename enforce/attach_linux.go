package enforce

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// newMask is a mask that this apply mounted, and inside which further masks are mounted.
type newMask struct {
	path string
	tree int
	// exception: it is to be open, and is read-only until what lies in it is covered.
	exception bool
}

func (l *newMask) rel(p string) string { return rest(p, l.path) }

// mountAll mounts the missing masks of sorted wants, each before those inside it.
func (m *mounter) mountAll(wants []want, in *newMask) error {
	have := map[string]bool{}
	if in == nil {
		for _, c := range m.mounted {
			have[c.path] = true
		}
	}
	return m.mountIn(wants, in, have)
}

func (m *mounter) mountIn(wants []want, in *newMask, have map[string]bool) error {
	for len(wants) > 0 {
		n := subtree(wants)
		w, inside := wants[0], wants[1:n]
		wants = wants[n:]
		if have[w.path] {
			if err := m.mountIn(inside, in, have); err != nil {
				return err
			}
			continue
		}
		if err := m.mount(w, inside, in, have); errors.Is(err, errHidden) && in == nil {
			m.later = append(append(m.later, w), inside...)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// mount masks one path and then the paths inside it.
func (m *mounter) mount(w want, inside []want, in *newMask, have map[string]bool) error {
	l, err := m.mountMask(w, inside, in)
	if gone(err) || errors.Is(err, unix.EINVAL) { // EINVAL: the mount around target is detached
		err = errMoved
	}
	if err != nil {
		return fmt.Errorf("cannot cover %s: %w", chat.Quote(w.path), err)
	}
	defer unix.Close(l.tree)
	if err := m.mountIn(inside, l, have); err != nil {
		return err
	}
	if l.exception {
		if err := setReadOnly(l.tree, false); err != nil {
			return fmt.Errorf("cannot open %s: %w", chat.Quote(w.path), err)
		}
	}
	return nil
}

// mountMask masks one path, after it has copied the exceptions inside.
func (m *mounter) mountMask(w want, inside []want, in *newMask) (*newMask, error) {
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
	l := &newMask{path: w.path}
	if l.tree, err = m.treeOf(w, target, old, inside); err != nil {
		return nil, err
	}
	if w.class == wallOpen && len(inside) > 0 {
		l.exception, err = true, setReadOnly(l.tree, true)
	}
	if err == nil && w.class != wallClosed {
		err = m.mark(l.tree)
	}
	if err == nil {
		sys.Failpoint("mount.marked")
		err = m.attach(l.tree, target, old)
	}
	var st unix.Statx_t
	if err == nil {
		st, err = statFD(l.tree)
	}
	if err != nil {
		unix.Close(l.tree)
		return nil, err
	}
	m.mounted = append(m.mounted, maskMount{w, st.Mnt_id})
	sys.Failpoint("mount.applied")
	return l, nil
}

// attach mounts tree over target, or replaces an old mask. It replaces by mounting below the old
// mask, which is unmounted later, so that one of both is visible at any time. A kernel before 6.5
// cannot mount below, and none can at the root of a session. There the new mask goes over the old
// one, which stays below it.
func (m *mounter) attach(tree, target int, old *maskMount) error {
	if old == nil {
		return moveMount(tree, target, 0)
	}
	err := error(unix.EINVAL)
	if !m.noSwap {
		err = moveMount(tree, target, moveBeneath)
	}
	if errors.Is(err, unix.EINVAL) {
		if m.stacked(old.path) >= maxStacked {
			return errHidden
		}
		delete(m.dropped, old.id) // unmounting it would unmount the new mask too
		return moveMount(tree, target, 0)
	}
	return err
}

// maxStacked bounds the old masks below one mask, where the kernel cannot mount below. Beyond the
// bound all of them are unmounted before the next mask is mounted.
const maxStacked = 16

func (m *mounter) stacked(p string) int {
	n := 0
	for _, c := range m.dropped {
		if c.path == p {
			n++
		}
	}
	return n
}

// copyException copies the tree of an exception, or of a submount that must stay visible.
func (m *mounter) copyException(i want) error {
	if _, ok := m.copies[i.path]; ok || !i.isException() && !(i.base && i.class != wallClosed) {
		return nil
	}
	tree, err := m.copyOf(i)
	if err == nil {
		m.copies[i.path] = tree
	}
	return err
}

func (m *mounter) copyOf(w want) (int, error) {
	fd, err := m.source(w)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openTree(fd)
}

// treeOf returns the detached tree that masks w. It has w's file alone: [nest] adds each submount
// as a want of its own, so that each is watched.
func (m *mounter) treeOf(w want, target int, old *maskMount, inside []want) (tree int, err error) {
	shown := w.class != wallClosed
	switch {
	case shown && (w.isException() || w.base || old != nil):
		if copied, ok := m.copies[w.path]; ok {
			delete(m.copies, w.path)
			tree = copied
		} else {
			tree, err = m.copyOf(w)
		}
	case shown:
		tree, err = openTree(target)
	case w.dir && (m.exceptions || slices.ContainsFunc(inside, want.needsMountPoint)):
		return m.roomyMask(w, inside)
	default:
		err = inOwnNamespace(func() (err error) {
			tree, err = openTree(m.sources.of(w.dir))
			return err
		})
	}
	if err == nil && w.class == wallReadOnly {
		if err = setReadOnly(tree, true); err != nil {
			unix.Close(tree)
		}
	}
	return tree, err
}

// roomyMask returns a mask of a closed directory that has, or can get, mount points for exceptions.
func (m *mounter) roomyMask(w want, inside []want) (int, error) {
	tree, err := newTmpfs("0")
	if err != nil {
		return -1, err
	}
	var places []want
	for _, i := range inside {
		if i.needsMountPoint() && m.owner[i.path] == w.path {
			places = append(places, i)
		}
	}
	if len(places) > 0 {
		err = makeMountPoints(tree, w.path, places)
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
