package pathclass

import (
	"fmt"

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
			err = k.dir(fd, b.Path, filerules.Open, 0, k.otherName)
		}
		if err != nil {
			return fmt.Errorf("cannot look for other names below %s: %w", b.Path, err)
		}
	}
	return nil
}

// otherName is the visit that finds further names.
func (k *Walker) otherName(
	dir int, p string, e dirent, _ filerules.Class,
) (is filerules.Class, enter bool, err error) {
	if err := k.look(2 * maxWalk); err != nil || e.kind == unix.DT_DIR {
		return is, err == nil && k.bases[p] == nil, err
	}
	var st unix.Statx_t
	err = unix.Statx(dir, e.name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	if err != nil || st.Nlink < 2 {
		if k.skips(err) {
			err = nil
		}
		return is, false, err
	}
	class, ok := k.linked[sys.InodeOf(&st)]
	has, by := k.Wall.Class(p), k.nameOf[sys.InodeOf(&st)]
	switch {
	case !ok || class <= has:
	case class == filerules.Closed && k.in.Watched:
		err = k.Close(k.in, dir, e.name, by)
	default:
		k.want(Place{Path: p, Class: class, Parent: has, Inode: sys.InodeOf(&st)})
		k.Causes[p] = by
	}
	return is, false, err
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
			k.Causes[p] = link
		}
	}
}
