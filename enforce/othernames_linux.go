package enforce

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/filerules"
)

// otherNames looks for further names of the files that have a class and more than one.
func (k *walker) otherNames(bases []*baseMount) error {
	if len(k.linked) == 0 {
		return nil
	}
	for _, b := range bases {
		fd, err := openBeneath(b.tree, ".", unix.O_RDONLY|unix.O_DIRECTORY)
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

func (k *walker) namesIn(fd int, p string, depth int) error {
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
	if gone(err) {
		return nil
	}
	return err
}

func (k *walker) otherName(dir int, p, name string) error {
	var st unix.Statx_t
	if err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil || st.Nlink < 2 {
		if k.skips(err) {
			return nil
		}
		return err
	}
	class, ok := k.linked[inodeOf(&st)]
	if has := k.wall.class(p); ok && class > has {
		k.want(want{path: p, class: class, parent: has, inode: inodeOf(&st)})
		k.recordCause(p, k.nameOf[inodeOf(&st)])
	}
	return nil
}

// closeLinkTargets closes what a closed link of somebody else leads to. A link of the
// chat's own says nothing: it could close what others share, or open nothing.
func (k *walker) closeLinkTargets() {
	seen := map[string]bool{}
	for _, link := range k.links {
		p := filerules.Physical(link)
		if seen[p] {
			continue
		}
		seen[p] = true
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
			continue
		}
		if has := k.wall.class(p); has != wallClosed && !inKernelPath(p) {
			k.want(want{path: p, class: wallClosed, parent: has, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, inode: inodeOf(&st)})
			k.recordCause(p, link)
		}
	}
}
