package enforce

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// dirCache is where directories are in one session. An entry from before a move is old: it counts
// only for a directory that is gone.
type dirCache struct {
	dirs map[handle]cachedDir
	age  int
}

type cachedDir struct {
	paths []string
	age   int
}

// put records that a directory was found now, at rel in a tree at root.
func (f *dirCache) put(dir handle, root, rel string) {
	if f.dirs == nil || len(f.dirs) > maxFound {
		f.dirs = map[handle]cachedDir{}
	}
	d := f.dirs[dir]
	if d.age != f.age {
		d = cachedDir{age: f.age}
	}
	if p := path.Join(root, rel); !slices.Contains(d.paths, p) {
		d.paths = append(slices.Clip(d.paths), p)
	}
	f.dirs[dir] = d
}

// putChild records the place of a directory that was made in another.
func (f *dirCache) putChild(at dirName, child handle) {
	if d, ok := f.dirs[at.dir]; ok {
		f.dirs[child] = cachedDir{d.pathsOf(at.name), d.age}
	}
}

// pathsOf are where a name in the directory is.
func (d cachedDir) pathsOf(name string) (all []string) {
	for _, p := range d.paths {
		all = append(all, path.Join(p, name))
	}
	return all
}

// pathsOf are where a name is in the session. known is false where nobody can tell.
func (s *watchedSession) pathsOf(n dirName) (paths []string, known bool) {
	known = true
	d, ok := s.dirs.dirs[n.dir]
	if !ok || d.age != s.dirs.age {
		for _, t := range s.trees {
			if t.fsid != n.dir.fsid() {
				continue
			}
			rel, err := t.pathOf(n.dir)
			if err == nil {
				s.dirs.put(n.dir, t.Path, rel)
			}
			known = known && (err == nil || errors.Is(err, errElsewhere))
		}
		d = s.dirs.dirs[n.dir] // what was known of one that is gone
	}
	return d.pathsOf(n.name), known
}

// errElsewhere means that a directory is not in a mount, or no longer exists.
var errElsewhere = errors.New("it is not in this mount")

// findTries bounds the searches for a directory that moves during each of them.
const findTries = 100

// pathOf is where a directory lies in this mount; errElsewhere if it does not. A directory that is
// moved while it is looked for is still here. A cache that had it elsewhere would miss all names in
// it. So only the kernel says that it is not, by what is around it.
func (t watchedTree) pathOf(dir handle) (string, error) {
	fd, err := dir.open(t.fd)
	if errors.Is(err, unix.ESTALE) {
		return "", errElsewhere
	}
	if err != nil {
		return "", fmt.Errorf("open_by_handle_at: %w", err)
	}
	defer unix.Close(fd)
	p := ""
	for range findTries {
		if p, err = rawPathOf(fd); err != nil {
			return "", err
		}
		if t.has(p, fd) {
			return p, nil
		}
		if err := t.contains(fd); err != nil {
			return "", err
		}
		if st, err := sys.StatFD(fd); err == nil && st.Nlink == 0 {
			return strings.TrimSuffix(p, deletedMark), nil // it was removed: so it was called
		}
	}
	return p, nil // it is moved on and on
}

// has reports whether fd's directory is at p in the mount. If the directory is outside the mount, p
// is a path from the root of the file system and may name another directory here.
func (t watchedTree) has(p string, fd int) bool {
	again, found, err := sys.OpenPath(t.Tree, p)
	if err != nil {
		return false
	}
	unix.Close(again)
	st, err := sys.StatFD(fd)
	return err == nil && sys.InodeOf(&st) == sys.InodeOf(&found)
}

// contains returns errElsewhere if fd's directory is outside the mount through which it was opened.
// The kernel then refuses ".." (path_connected in fs/namei.c), atomically with respect to moves.
func (t watchedTree) contains(fd int) error {
	up, err := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return errElsewhere
	}
	if err != nil {
		return fmt.Errorf("cannot look around a directory: %w", err)
	}
	return unix.Close(up)
}
