package masks

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// errHidden means that an old mask hides a path, which is reachable only after its unmount.
var errHidden = errors.New("an old mask is over it")

// target opens the mount point for the mask of w: inside the new mask around it, or from the
// session's root. old is the old mask of the same path that the new one replaces.
func (m *Mounter) target(w pathclass.Place, in *newMask) (fd int, old *Mount, err error) {
	start, rel := m.Root, w.Path
	if in != nil {
		start, rel = in.tree, sys.Rest(w.Path, in.path)
	}
	if w.NeedsMountPoint() && in == nil {
		if err := m.addMountPoint(w); err != nil {
			return -1, nil, err
		}
	}
	fd, st, err := sys.OpenPath(start, rel)
	if err != nil && !sys.Gone(err) {
		return -1, nil, err
	}
	if err == nil {
		dropped, is := m.Dropped[st.Mnt_id]
		switch {
		case is && dropped.Path == w.Path && dropped.Dir == w.Dir && m.inPlace(dropped):
			return fd, &dropped, nil
		case !is && (w.NeedsMountPoint() || sys.InodeOf(&st) == w.Inode):
			return fd, nil, nil
		}
		unix.Close(fd)
	}
	if in != nil || len(m.Dropped) == 0 {
		return -1, nil, ErrMoved
	}
	if w.NeedsMountPoint() || m.owner[w.Path] != "" {
		return -1, nil, errHidden // inside a mask that stays, below one that goes
	}
	fd, err = m.source(w)
	return fd, nil, err
}

// source opens the file of w on bubblewrap's mount, below any mask. If the file system has no file
// handles (open_by_handle_at(2)) and something is mounted over the file, source returns errHidden.
func (m *Mounter) source(w pathclass.Place) (int, error) {
	b := m.baseOf(w.Path)
	if b == nil {
		return -1, ErrMoved
	}
	rel := sys.Rest(w.Path, b.Path)
	if rel == "" {
		return unix.FcntlInt(uintptr(b.Top), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd, st, err := sys.OpenPath(m.Root, w.Path)
	if err == nil {
		if st.Mnt_id == uint64(b.ID) && sys.InodeOf(&st) == w.Inode {
			return fd, nil
		}
		unix.Close(fd)
	}
	below, st, err := sys.OpenPath(b.Tree, rel) // the detached copy has no masks
	if sys.Gone(err) {
		return -1, ErrMoved
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(below)
	if sys.InodeOf(&st) != w.Inode {
		return -1, ErrMoved
	}
	return m.sameOn(b, below, w.Path)
}

// sameOn opens fd's file through the mount b of the session. It refuses a file that has another
// name there than p, since a file may have several.
func (m *Mounter) sameOn(b *pathclass.Base, fd int, p string) (int, error) {
	if b.Handles < 0 {
		return -1, errHidden
	}
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, errHidden
	}
	same, err := unix.OpenByHandleAt(b.Handles, h, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return -1, errHidden
	}
	buf := make([]byte, len(p)+1)
	n, err := unix.Readlinkat(m.ProcFD, strconv.Itoa(same), buf)
	if err != nil || string(buf[:n]) != p {
		unix.Close(same)
		return -1, errHidden
	}
	return same, nil
}

// baseOf returns bubblewrap's mount that contains p.
func (m *Mounter) baseOf(p string) *pathclass.Base {
	for _, b := range slices.Backward(m.Bases) { // inner ones come after outer ones
		if chat.Within(p, b.Path) {
			return b
		}
	}
	return nil
}

// addMountPoint creates an empty mount point for w, if there is none, in the mask around it that
// stays. It writes through a detached copy of that mask, which no process of the session can reach.
func (m *Mounter) addMountPoint(w pathclass.Place) error {
	was := ""
	fd, st, err := sys.OpenPath(m.Root, w.Path)
	if err == nil {
		unix.Close(fd)
		if _, old := m.Dropped[st.Mnt_id]; old || (st.Mode&unix.S_IFMT == unix.S_IFDIR) == w.Dir {
			return nil
		}
		was = fmt.Sprintf(".was-%d", st.Ino) // the old mount point is of the other kind
	} else if !sys.Gone(err) {
		return err
	}
	around := m.owner[w.Path]
	if around == "" || w.Parent != filerules.Closed {
		return ErrMoved
	}
	if fd, _, err = sys.OpenPath(m.Root, around); err != nil {
		return errHidden
	}
	defer unix.Close(fd)
	room, err := openTree(fd)
	if err != nil {
		return errHidden
	}
	defer unix.Close(room)
	if err := setReadOnly(room, false); err != nil {
		return err
	}
	if was != "" {
		err = unix.Renameat(room, sys.Rest(w.Path, around), room, was)
	}
	if err == nil {
		err = makeMountPoints(room, around, []pathclass.Place{w})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errHidden, err)
	}
	return nil
}

// makeMountPoints creates empty mount points for exceptions in the mask of a closed directory.
func makeMountPoints(tree int, around string, exceptions []pathclass.Place) error {
	for _, i := range exceptions {
		rel := sys.Rest(i.Path, around)
		if err := makeMountPoint(tree, rel, i.Dir); err != nil {
			return fmt.Errorf("cannot make a place for %s: %w", chat.Quote(i.Path), err)
		}
	}
	if err := makePassable(tree); err != nil {
		return fmt.Errorf("cannot let exceptions be reached in %s: %w", chat.Quote(around), err)
	}
	return nil
}

// makePassable lets the root of a mask be traversed, not listed.
func makePassable(tree int) error {
	fd, err := sys.OpenBeneath(tree, "", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, 0o111)
}

// makeMountPoint makes an empty directory or file in tree, and the directories to it. Nobody else
// reaches the tree, and there is no link in it.
func makeMountPoint(tree int, rel string, isDir bool) error {
	for end := range len(rel) + 1 {
		if end < len(rel) && rel[end] != '/' {
			continue
		}
		var err error
		if end == len(rel) && !isDir {
			err = unix.Mknodat(tree, rel, unix.S_IFREG, 0)
		} else if err = unix.Mkdirat(tree, rel[:end], 0); err == nil {
			err = unix.Fchmodat(tree, rel[:end], 0o111, 0) // whatever the umask
		}
		if err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}
