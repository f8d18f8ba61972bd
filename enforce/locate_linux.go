package enforce

import (
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// location is the path of a file that is being opened. dirs are the directories around it, on a
// mount that the session can write to.
type location struct {
	path string
	dirs []handle
	// gone: the file was removed, and its directory was removed or moved.
	gone bool
}

// maxLocateTries bounds the searches for a file that moves during each of them.
const maxLocateTries = 200

// errReplaced means that a path is no longer the file that is being opened.
var errReplaced = errors.New("it was moved meanwhile")

// locate returns the location of fd's file once the queue holds the events of all earlier names
// of the file and of the directories around it. The kernel queues an event after it changes the
// name and before it unlocks the directory. So locate waits for the lock of each directory on the
// path, and the wait counts only if the path still leads to the file. locate holds no lock of its
// own: a process inside a directory may be stopped. known is false if the file moves faster than
// locate finds it.
func (w *watch) locate(s *watchedSession, fd int) (at location, known bool) {
	for range maxLocateTries {
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
		if err == nil || !errors.Is(err, errReplaced) {
			return at, err == nil
		}
		s.opens.spend(time.Now(), time.Since(began))
	}
	return at, at.gone
}

// way walks from the root of the mount to fd's file at p and waits for the lock of each directory.
// It returns errReplaced if p is another file.
func (t watchedTree) way(p string, fd int) (location, error) {
	st, err := sys.StatFD(fd)
	at := location{path: p}
	if removed := st.Nlink == 0; removed || !t.Writable {
		at.path, at.gone = path.Clean(strings.TrimSuffix(p, deletedMark)), removed
	}
	// Nothing moves on a read-only mount, and the root of a mount lies in no directory.
	if err != nil || !t.Writable || p == t.Path {
		return at, err
	}
	at.dirs, err = t.around(at.path, sys.InodeOf(&st), at.gone)
	if sys.Gone(err) {
		err = errReplaced
	}
	at.gone = at.gone && err != nil
	return at, err
}

// around returns the directories between the root of the mount and p, as they are in each other now,
// after it has waited for the lock of each and of the root. It returns errReplaced if p is another
// file than is, unless that was removed.
func (t watchedTree) around(p string, is sys.Inode, removed bool) (handles []handle, err error) {
	if t.fd < 0 || p == t.Path { // what is mounted lies in no directory of the mount
		return nil, nil
	}
	dirs, err := t.open(sys.Rest(path.Dir(p), t.Path))
	defer func() { _ = sys.CloseAll(dirs) }()
	if err == nil && !removed {
		err = isAt(dirs[len(dirs)-1], path.Base(p), is)
	}
	for i, dir := range dirs {
		var one [64]byte
		_, _ = unix.Getdents(dir, one[:]) // takes the directory's lock; the result does not matter
		if err != nil || i == 0 || t.fsid == "" {
			continue
		}
		var h handle
		h, err = handleOf(dir, t.fsid)
		handles = append(handles, h)
	}
	return handles, err
}

// open opens the root of the mount and each directory on the relative path rel.
func (t watchedTree) open(rel string) (dirs []int, err error) {
	at := t.fd
	for name := range strings.SplitSeq(strings.TrimSuffix("./"+rel, "/"), "/") {
		if at, err = sys.OpenBeneath(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME); err != nil {
			return dirs, err
		}
		dirs = append(dirs, at)
	}
	return dirs, nil
}

// isAt returns errReplaced if name in dir is another file than is.
func isAt(dir int, name string, is sys.Inode) error {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	if err == nil && sys.InodeOf(&st) != is {
		err = errReplaced
	}
	return err
}
