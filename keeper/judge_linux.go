package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// run answers for ever. An error means that opens may wait unanswered: the program ends
// then, and the one that holds the groups starts another.
func (w *watch) run() error {
	buf := make([]byte, 64<<10)
	for {
		p := []unix.PollFd{{Fd: int32(w.perm), Events: unix.POLLIN}, {Fd: int32(w.names), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("cannot wait for events: %w", err)
		}
		w.mu.Lock()
		err := w.readNames()
		if err == nil {
			err = w.readOpens(buf)
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// readOpens answers what is asked, each in turn.
func (w *watch) readOpens(buf []byte) error {
	n, err := unix.Read(w.perm, buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err != nil {
		return nil // the kernel could not open the file for us, and has refused its open
	}
	events, err := parseEvents(buf[:n])
	for _, e := range events {
		if e.fd < 0 {
			continue
		}
		verdict := uint32(unix.FAN_DENY)
		if e.mask&unix.FAN_OPEN_PERM == 0 || w.judge(e.fd) {
			verdict = unix.FAN_ALLOW
		}
		answer := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(e.fd)), verdict)
		_, werr := unix.Write(w.perm, answer)
		unix.Close(e.fd)
		if werr != nil && werr != unix.ENOENT { // ENOENT: who asked was killed meanwhile
			err = errors.Join(err, fmt.Errorf("cannot answer: %w", werr))
		}
	}
	return err
}

// judge says whether what fd is open on may be opened. It says no when in doubt.
func (w *watch) judge(fd int) bool {
	if w.blind {
		return true
	}
	st, err := placeOf(fd)
	s := w.byMount[st.Mnt_id]
	if err != nil || s == nil {
		return false
	}
	p, err := pathOf(fd)
	if err != nil {
		return false
	}
	t, ok := s.treeOf(p)
	if ok && t.Writable {
		t.waitFor(path.Dir(p))
		if err := w.readNames(); err != nil {
			return false
		}
		if p, err = pathOf(fd); err != nil {
			return false
		}
		t, ok = s.treeOf(p)
	}
	if !ok {
		return false
	}
	class := s.classOf(t, p, fd)
	return class == wallOpen || class == wallReadOnly && onReadOnly(fd)
}

// pathOf is where fd's file is: in the session, for nothing of its mounts can be
// reached from here otherwise. A name that was taken away counts as it was.
func pathOf(fd int) (string, error) {
	p, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	p = strings.TrimSuffix(p, " (deleted)")
	if !path.IsAbs(p) {
		return "", fmt.Errorf("cannot tell where %s is", chat.Quote(p))
	}
	return path.Clean(p), nil
}

func onReadOnly(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// treeOf is the mount of bubblewrap's that p lies in.
func (s *watched) treeOf(p string) (best watchedTree, ok bool) {
	for _, t := range s.trees {
		if under(p, t.Path) && (!ok || len(t.Path) > len(best.Path)) {
			best, ok = t, true
		}
	}
	if !ok || len(s.k.bases) == len(s.trees) {
		return best, ok
	}
	for _, b := range s.k.bases {
		if b.Path == p && len(b.Path) > len(best.Path) {
			return watchedTree{baseMount: b, fd: -1}, true // a file that is mounted
		}
	}
	return best, ok
}

// waitFor returns when no rename in the directory is under way.
func (t watchedTree) waitFor(dir string) {
	fd, err := openBeneath(t.tree, rest(dir, t.Path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
	if err != nil {
		return // moved: then its event is there
	}
	var one [64]byte
	_, _ = unix.Getdents(fd, one[:])
	unix.Close(fd)
}

// classOf is the strictest class of a file's names, of what is known of it, and of
// the directories around it.
func (s *watched) classOf(t watchedTree, p string, fd int) wallClass {
	class := s.classOfNames(p)
	if class == wallClosed || len(s.denied)+len(s.before) == 0 || t.fsid == "" {
		return class
	}
	known := func(h handle) wallClass { return max(s.denied[h], s.before[h]) }
	h, err := handleOf(fd, t.fsid)
	if err != nil {
		return wallClosed
	}
	class = max(class, known(h))
	st, err := placeOf(fd)
	if err == nil {
		err = t.eachDirectory(p, inodeOf(&st), func(h handle) { class = max(class, known(h)) })
	}
	if err != nil {
		return wallClosed
	}
	return class
}

// classOfNames judges p and what it would be called had no directory been moved.
func (s *watched) classOfNames(p string) wallClass {
	names := []string{p}
	for i := 0; i < len(names) && len(s.moved) > 0; i++ {
		for end, at := len(names[i]), names[i]; end > 0; end = strings.LastIndexByte(at[:end], '/') {
			for _, old := range s.moved[at[:end]] {
				if name := path.Join(old, at[end:]); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if len(names) > maxNames {
			return wallClosed
		}
	}
	class := wallOpen
	for _, name := range names {
		for _, wall := range s.walls {
			class = max(class, wall.class(name))
		}
	}
	return class
}

// eachDirectory calls do for every directory from the root of the mount to the one
// that p is in, as they are in each other now. Unless is is empty, it is an error if
// p is another file.
func (t watchedTree) eachDirectory(p string, is inode, do func(handle)) error {
	if t.fd < 0 || p == t.Path { // what is mounted lies in no directory of the mount
		return nil
	}
	rel := rest(path.Dir(p), t.Path)
	at := t.fd
	defer func() {
		if at != t.fd {
			unix.Close(at)
		}
	}()
	for name := range strings.SplitSeq(rel, "/") {
		if name == "" {
			continue
		}
		next, err := openBeneath(at, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		if at != t.fd {
			unix.Close(at)
		}
		at = next
		h, err := handleOf(at, t.fsid)
		if err != nil {
			return err
		}
		do(h)
	}
	if is == (inode{}) {
		return nil
	}
	var st unix.Statx_t
	if err := unix.Statx(at, path.Base(p), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	if inodeOf(&st) != is {
		return errMoved
	}
	return nil
}
