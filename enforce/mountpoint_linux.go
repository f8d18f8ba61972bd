package enforce

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// errHidden means that an old mask covers a path, which is reachable only after its unmount.
var errHidden = errors.New("an old cover is over it")

// target opens the mount point for the mask of w: inside the new mask around it, or from the
// session's root. old is the old mask of the same path that the new one replaces.
func (m *mounter) target(w want, in *newMask) (fd int, old *maskMount, err error) {
	start, rel := m.root, strings.TrimPrefix(w.path, "/")
	if in != nil {
		start, rel = in.tree, in.rel(w.path)
	}
	if w.needsMountPoint() && in == nil {
		if err := m.addMountPoint(w); err != nil {
			return -1, nil, err
		}
	}
	fd, err = openBeneath(start, rel, unix.O_PATH)
	if err != nil && !gone(err) {
		return -1, nil, err
	}
	var st unix.Statx_t
	if err == nil {
		if st, err = statFD(fd); err != nil {
			unix.Close(fd)
			return -1, nil, err
		}
		dropped, is := m.dropped[st.Mnt_id]
		switch {
		case is && dropped.path == w.path && dropped.dir == w.dir && m.inPlace(dropped):
			return fd, &dropped, nil
		case !is && (w.needsMountPoint() || inodeOf(&st) == w.inode):
			return fd, nil, nil
		}
		unix.Close(fd)
	}
	if in != nil || len(m.dropped) == 0 {
		return -1, nil, errMoved
	}
	if w.needsMountPoint() || m.owner[w.path] != "" {
		return -1, nil, errHidden // inside a mask that stays, below one that goes
	}
	fd, err = m.source(w)
	return fd, nil, err
}

// source opens the file of w on bubblewrap's mount, below any mask. If the file system has no file
// handles (open_by_handle_at(2)) and something covers the file, source returns errHidden.
func (m *mounter) source(w want) (int, error) {
	b := m.baseOf(w.path)
	if b == nil {
		return -1, errMoved
	}
	rel := rest(w.path, b.Path)
	if rel == "" {
		return unix.FcntlInt(uintptr(b.top), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd, err := openBeneath(m.root, strings.TrimPrefix(w.path, "/"), unix.O_PATH)
	if err == nil {
		st, err := statFD(fd)
		if err == nil && st.Mnt_id == uint64(b.ID) && inodeOf(&st) == w.inode {
			return fd, nil
		}
		unix.Close(fd)
	}
	below, err := openBeneath(b.tree, rel, unix.O_PATH) // the detached copy has no masks
	if gone(err) {
		return -1, errMoved
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(below)
	if st, err := statFD(below); err != nil || inodeOf(&st) != w.inode {
		return -1, errors.Join(errMoved, err)
	}
	return m.sameOn(b, below, w.path)
}

// sameOn opens fd's file through the mount b of the session. It refuses a file that has another
// name there than p, since a file may have several.
func (m *mounter) sameOn(b *baseMount, fd int, p string) (int, error) {
	if b.handles < 0 {
		return -1, errHidden
	}
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, errHidden
	}
	same, err := unix.OpenByHandleAt(b.handles, h, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return -1, errHidden
	}
	buf := make([]byte, len(p)+1)
	n, err := unix.Readlinkat(m.procFD, strconv.Itoa(same), buf)
	if err != nil || string(buf[:n]) != p {
		unix.Close(same)
		return -1, errHidden
	}
	return same, nil
}

// baseOf returns bubblewrap's mount that contains p.
func (m *mounter) baseOf(p string) *baseMount {
	for at := p; ; at = path.Dir(at) {
		if b := m.bases[at]; b != nil || at == "/" {
			return b
		}
	}
}

// addMountPoint creates an empty mount point for w, if there is none, in the mask around it that
// stays. It writes through a detached copy of that mask, which no process of the session can reach.
func (m *mounter) addMountPoint(w want) error {
	was := ""
	fd, err := openBeneath(m.root, strings.TrimPrefix(w.path, "/"), unix.O_PATH)
	if err == nil {
		st, err := statFD(fd)
		unix.Close(fd)
		if _, old := m.dropped[st.Mnt_id]; err != nil || old || (st.Mode&unix.S_IFMT == unix.S_IFDIR) == w.dir {
			return err
		}
		was = fmt.Sprintf(".was-%d", st.Ino) // the old mount point is of the other kind
	} else if !gone(err) {
		return err
	}
	around := m.owner[w.path]
	if around == "" || w.parent != wallClosed {
		return errMoved
	}
	fd, err = openBeneath(m.root, strings.TrimPrefix(around, "/"), unix.O_PATH)
	if err != nil {
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
		err = unix.Renameat(room, rest(w.path, around), room, was)
	}
	if err == nil {
		err = makeMountPoints(room, around, []want{w})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errHidden, err)
	}
	return nil
}

// makeMountPoints creates empty mount points for exceptions in the mask of a closed directory.
func makeMountPoints(tree int, around string, exceptions []want) error {
	for _, i := range exceptions {
		rel := rest(i.path, around)
		if err := makeMountPoint(tree, rel, i.dir); err != nil {
			return fmt.Errorf("cannot make a place for %s: %w", chat.Quote(i.path), err)
		}
	}
	if err := makePassable(tree); err != nil {
		return fmt.Errorf("cannot let islands be reached in %s: %w", chat.Quote(around), err)
	}
	return nil
}

// makePassable lets the root of a mask be traversed, not listed.
func makePassable(tree int) error {
	fd, err := openBeneath(tree, "", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, 0o111)
}

// makeMountPoint makes an empty directory or file below dir, and the directories to it.
func makeMountPoint(dir int, rel string, isDir bool) error {
	names := strings.Split(rel, "/")
	at, err := unix.Dup(dir)
	if err != nil {
		return err
	}
	for i, name := range names {
		last := i == len(names)-1
		if last && !isDir {
			f, err := unix.Openat(at, name, unix.O_CREAT|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			unix.Close(at)
			if err == nil {
				unix.Close(f)
			}
			return err
		}
		err := unix.Mkdirat(at, name, 0)
		if err == nil {
			err = unix.Fchmodat(at, name, 0o111, 0) // whatever the umask
		}
		if err != nil && err != unix.EEXIST {
			unix.Close(at)
			return err
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			return err
		}
		at = next
	}
	return unix.Close(at)
}
