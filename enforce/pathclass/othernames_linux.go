package pathclass

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// otherNames looks for further names of the files that have a class and more than one.
func (k *Walker) otherNames(bases []*Base) error {
	if len(k.linked) == 0 {
		return nil
	}
	for _, b := range bases {
		k.in = b
		fd, err := sys.OpenBeneath(b.Tree, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if k.skips(err) {
			continue
		}
		if err == nil {
			err = k.namesIn(fd, b.Path, 0)
		}
		if err != nil {
			return fmt.Errorf("cannot look for other names below %s: %w", b.Path, err)
		}
	}
	return nil
}

func (k *Walker) namesIn(fd int, p string, depth int) error {
	defer unix.Close(fd)
	if depth > maxDepth {
		return fmt.Errorf("directories lie deeper than %d in each other", maxDepth)
	}
	var below []string
	err := readDirents(fd, make([]byte, 16<<10), func(e dirent) error {
		if err := k.look(2 * maxWalk); err != nil {
			return err
		}
		full := path.Join(p, e.name)
		if e.kind == unix.DT_DIR {
			if k.bases[full] == nil {
				below = append(below, e.name)
			}
			return nil
		}
		return k.otherName(fd, full, e.name)
	})
	for _, name := range below {
		if err != nil {
			return err
		}
		sub, openErr := k.open(fd, name)
		if k.skips(openErr) {
			continue
		}
		if err = openErr; err == nil {
			err = k.namesIn(sub, path.Join(p, name), depth+1)
		}
	}
	if sys.Gone(err) {
		return nil
	}
	return err
}

func (k *Walker) otherName(dir int, p, name string) error {
	var st unix.Statx_t
	if err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil ||
		st.Nlink < 2 {
		if k.skips(err) {
			return nil
		}
		return err
	}
	class, ok := k.linked[sys.InodeOf(&st)]
	has, by := k.Wall.Class(p), k.nameOf[sys.InodeOf(&st)]
	switch {
	case !ok || class <= has:
	case class == filerules.Closed && k.in.Watched:
		return k.Close(k.in, dir, name, by)
	default:
		k.want(Place{Path: p, Class: class, Parent: has, Inode: sys.InodeOf(&st)})
		k.recordCause(p, by)
	}
	return nil
}

// closeLinkTargets closes what a closed link of somebody else leads to. A link of the
// chat's own says nothing: it could close what others share, or open nothing.
func (k *Walker) closeLinkTargets() {
	seen := map[string]bool{}
	for _, link := range k.links {
		p := filerules.Physical(link)
		if seen[p] {
			continue
		}
		seen[p] = true
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS,
			&st); err != nil {
			continue
		}
		if has := k.Wall.Class(p); has != filerules.Closed && !inKernelPath(p) {
			k.want(Place{Path: p, Class: filerules.Closed, Parent: has,
				Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, Inode: sys.InodeOf(&st)})
			k.recordCause(p, link)
		}
	}
}

// recordCause records the denied name of a file that is closed under another name.
func (k *Walker) recordCause(p, name string) {
	if k.Causes != nil {
		k.Causes[p] = name
	}
}
