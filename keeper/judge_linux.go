package keeper

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// judge says whether what fd is open on may be opened, by the names that are known. It
// says no when in doubt.
func (s *watched) judge(fd int) bool {
	p, err := pathOf(fd)
	if err != nil {
		return false
	}
	t, ok := s.treeOf(p)
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

// classOf is the strictest class of a file's names, of what is known of it, and of
// the directories around it.
func (s *watched) classOf(t watchedTree, p string, fd int) wallClass {
	class := s.classOfNames(p)
	if class == wallClosed || len(s.denied)+len(s.before) == 0 || t.fsid == "" {
		return class
	}
	h, err := handleOf(fd, t.fsid)
	if err != nil {
		return wallClosed
	}
	class = max(class, s.known(h))
	st, err := placeOf(fd)
	if err == nil {
		err = t.eachDirectory(p, inodeOf(&st), func(h handle) { class = max(class, s.known(h)) })
	}
	if err != nil {
		return wallClosed
	}
	return class
}

// classOfNames judges p and what it would be called had no directory been moved.
func (s *watched) classOfNames(p string) wallClass { return classBy(s.walls, s.namesOf(p)) }

// namesOf are these names; nil if they are too many.
func (s *watched) namesOf(p string) []string {
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
			return nil
		}
	}
	return names
}

// classBy is the strictest class of names.
func classBy(walls []*ruleWall, names []string) wallClass {
	if names == nil {
		return wallClosed
	}
	class := wallOpen
	for _, name := range names {
		for _, wall := range walls {
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
