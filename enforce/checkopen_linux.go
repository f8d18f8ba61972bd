package enforce

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// allows says whether what fd is open on, which was found at a spot, may be opened, by the names
// that are known. It says no when in doubt. It goes by that spot: only what it and the directories
// there were called before is known by now.
func (s *watchedSession) allows(fd int, at location) bool {
	t, ok := s.treeOf(at.path)
	if !ok {
		return false
	}
	class := s.classOf(t, at, fd)
	return class == filerules.Open || class == filerules.ReadOnly && onReadOnly(fd)
}

// deletedMark is what the kernel puts behind a name that was taken away.
const deletedMark = " (deleted)"

// pathOf is where fd's file is: in the session, for nothing of its mounts can be
// reached from here otherwise. A name that was taken away counts as it was.
func pathOf(fd int) (string, error) {
	p, err := rawPathOf(fd)
	return path.Clean(strings.TrimSuffix(p, deletedMark)), err
}

// rawPathOf is the same with that mark, which a name can end in, too.
func rawPathOf(fd int) (string, error) {
	p, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	if !path.IsAbs(p) {
		return "", fmt.Errorf("cannot tell where %s is", chat.Quote(p))
	}
	return p, nil
}

func onReadOnly(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// treeOf is the mount of bubblewrap's that p lies in.
func (s *watchedSession) treeOf(p string) (best watchedTree, ok bool) {
	for _, t := range s.trees {
		if chat.Within(p, t.Path) && (!ok || len(t.Path) > len(best.Path)) {
			best, ok = t, true
		}
	}
	if !ok || len(s.session.bases) == len(s.trees) {
		return best, ok
	}
	for _, b := range s.session.bases {
		if b.Path == p && len(b.Path) > len(best.Path) {
			return watchedTree{Base: b, fd: -1}, true // a file that is mounted
		}
	}
	return best, ok
}

// classOf is the strictest class of a file's names, of what is known of it, and of
// the directories around it.
func (s *watchedSession) classOf(t watchedTree, at location, fd int) filerules.Class {
	class := s.classOfNames(at.path)
	if class == filerules.Closed || len(s.denied)+len(s.before) == 0 || t.fsid == "" {
		return class
	}
	h, err := handleOf(fd, t.fsid)
	if err != nil {
		return filerules.Closed
	}
	class = max(class, s.classOfHandle(h))
	if s.isException(at.path) {
		return class
	}
	if !t.Writable {
		st, err := sys.StatFD(fd)
		if err == nil {
			at.dirs, err = t.around(at.path, sys.InodeOf(&st), false)
		}
		at.gone = err != nil
	}
	for _, dir := range at.dirs {
		class = max(class, s.classOfHandle(dir))
	}
	if at.gone {
		return filerules.Closed
	}
	return class
}

// isException reports whether rules open p inside a directory that they close. The directory's
// record does not close it then; its names and earlier names are checked.
func (s *watchedSession) isException(p string) bool {
	if !s.hasExceptions() || s.classOfNames(p) == filerules.Closed {
		return false
	}
	for p != "/" {
		if p = path.Dir(p); s.classOfNames(p) == filerules.Closed {
			return true
		}
	}
	return false
}

// classOfNames checks p and what it would be called had no directory been moved.
func (s *watchedSession) classOfNames(p string) filerules.Class {
	return classBy(s.walls, s.namesOf(p))
}

// namesOf are these names; nil if they are too many.
func (s *watchedSession) namesOf(p string) []string {
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
func classBy(walls []*pathclass.Wall, names []string) filerules.Class {
	if names == nil {
		return filerules.Closed
	}
	class := filerules.Open
	for _, name := range names {
		for _, wall := range walls {
			class = max(class, wall.Class(name))
		}
	}
	return class
}
