package enforce

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// newMask is a cover that was newMask in this round, and in which more is newMask.
type newMask struct {
	path string
	tree int
	// exception: it is to be open, and is read-only until what lies in it is covered.
	exception bool
}

func (l *newMask) rel(p string) string { return rest(p, l.path) }

// mountAll lays what is missing of sorted wants: each, and then what lies in it.
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

// mount covers one place, and what lies in it.
func (m *mounter) mount(w want, inside []want, in *newMask, have map[string]bool) error {
	l, err := m.mountMask(w, inside, in)
	if gone(err) || errors.Is(err, unix.EINVAL) { // EINVAL: what it was to lie on is mounted nowhere now
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

// mountMask covers one place, after it has copied the islands that lie in it.
func (m *mounter) mountMask(w want, inside []want, in *newMask) (*newMask, error) {
	target, old, err := m.target(w, in)
	if err != nil {
		return nil, err
	}
	defer unix.Close(target)
	if in == nil { // those further in are copied then, too
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
	return l, nil
}

// attach puts tree over target, or in the place of an old cover: first below it, so that
// one of both is there at any time. A kernel before 6.5 cannot do that, and none at the
// root of a session: there the new one goes over the old, which stays below it.
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
		delete(m.dropped, old.id) // its end would be that of what is on it
		return moveMount(tree, target, 0)
	}
	return err
}

// maxStacked bounds how many old covers stay below one, where the kernel cannot put one
// in the place of another. Beyond it they all go before the next comes.
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

// copyException copies what is to be seen in an island or another mount that comes along.
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

// treeOf is the tree that covers w, attached nowhere yet. It is w's file alone: mounts in
// it come along one by one ([nest]), so that each is watched.
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

// roomyMask is a cover of a closed directory in which islands have, or can get, a place.
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
