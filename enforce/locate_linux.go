package enforce

import (
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// spot is where the file of a question is, and what is around it in a mount that can be written to.
type spot struct {
	path string
	dirs []handle
	// gone: the file was removed, and the directory that it was in too, or moved.
	gone bool
}

// locateTries is how often a file is looked for that is moved meanwhile.
const locateTries = 200

// locate says where fd's file is, when every name that it and the directories around it had
// before is in the queue. The kernel queues an event after the name has changed, and before it
// lets go of the directory: so each directory on the way is waited for. What was waited for
// counts only if it leads to the file: a way that is gone says nothing of a rename under way. No
// lock is held meanwhile: who is in a directory may be kept from running. known is false where
// the file is moved faster than it is found.
func (w *watch) locate(s *watched, fd int) (at spot, known bool) {
	for range locateTries {
		began := time.Now()
		p, err := rawPathOf(fd)
		if err != nil {
			return at, false
		}
		t, ok := w.treeFor(s, p)
		if !ok {
			return at, false
		}
		at, err = t.way(p, fd)
		unix.Close(t.fd)
		if err == nil || !errors.Is(err, errMoved) {
			return at, err == nil
		}
		s.opens.spend(time.Now(), time.Since(began))
	}
	return at, at.gone
}

// way walks from the root of the mount to fd's file at p, waits for each directory, and is
// errMoved if another file is there.
func (t watchedTree) way(p string, fd int) (spot, error) {
	st, err := placeOf(fd)
	at := spot{path: p}
	if removed := st.Nlink == 0; removed || !t.Writable {
		at.path, at.gone = path.Clean(strings.TrimSuffix(p, deletedMark)), removed
	}
	// Nobody moves anything where nobody can write; what is mounted lies in no directory.
	if err != nil || !t.Writable || p == t.Path {
		return at, err
	}
	dirs, err := t.open(rest(path.Dir(at.path), t.Path))
	defer closeAll(dirs)
	if err == nil && !at.gone {
		err = isAt(dirs[len(dirs)-1], path.Base(p), inodeOf(&st))
	}
	if gone(err) {
		err = errMoved
	}
	if err != nil {
		return at, err
	}
	at.gone = false
	for i, dir := range dirs {
		var one [64]byte
		_, _ = unix.Getdents(dir, one[:]) // it waits, whatever it says
		if i == 0 {
			continue
		}
		h, err := handleOf(dir, t.fsid)
		if err != nil {
			return at, err
		}
		at.dirs = append(at.dirs, h)
	}
	return at, nil
}

// open opens the root of the mount, and each directory on the way rel from there.
func (t watchedTree) open(rel string) (dirs []int, err error) {
	at := t.fd
	for name := range strings.SplitSeq(strings.TrimSuffix("./"+rel, "/"), "/") {
		if at, err = openBeneath(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME); err != nil {
			return dirs, err
		}
		dirs = append(dirs, at)
	}
	return dirs, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// isAt is errMoved if name in dir is another file.
func isAt(dir int, name string, is inode) error {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	if err == nil && inodeOf(&st) != is {
		err = errMoved
	}
	return err
}
