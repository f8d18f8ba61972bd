package enforce

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Bounds of one walk of a session's trees. Beyond them the session does not start, because the
// rules would not cover the rest.
var (
	maxWalk   = 2_000_000 // names
	maxDepth  = 1000      // directories in each other
	maxMounts = 20_000    // places to cover
)

func inodeOf(st *unix.Statx_t) inode { return inode{st.Dev_major, st.Dev_minor, st.Ino} }

// walker walks the trees of a session as they are below all masks.
type walker struct {
	wall   *ruleWall
	uid    uint32
	bases  map[string]*baseMount
	wants  []want
	linked map[inode]wallClass // what has a class and more than one name
	linkAt []string            // where those were found
	nameOf map[inode]string    // the first of those, but for trees that are remembered
	causes map[string]string   // the denied name of what is closed under another
	links  []string            // symbolic links of others that are closed
	looked int
	order  Order
	trees  *treeCache
	// found, if it is there, is told each place instead of wants.
	found func(p string)
	// partial passes over what it may not read.
	partial bool
	// ctx ends it early; nil never does.
	ctx context.Context
}

func (k *walker) want(w want) {
	if k.found != nil {
		k.found(w.path)
	} else {
		k.wants = append(k.wants, w)
	}
}

// look counts one more name.
func (k *walker) look(most int) error {
	k.looked++
	switch {
	case k.looked > most:
		return fmt.Errorf("more than %d files to look through", maxWalk)
	case k.ctx != nil && k.looked%1024 == 0:
		return context.Cause(k.ctx)
	}
	return nil
}

// open opens a directory for the walk. O_NOATIME needs its owner or root.
func (k *walker) open(dir int, name string) (int, error) {
	flags := uint64(unix.O_RDONLY | unix.O_DIRECTORY)
	if !k.partial {
		flags |= unix.O_NOATIME
	}
	return openBeneath(dir, name, flags)
}

// skips reports whether the walk skips an entry because of err.
func (k *walker) skips(err error) bool {
	return gone(err) || k.partial && errors.Is(err, unix.EACCES)
}

// walk finds the wanted masks, in the order of mounting.
func (k *walker) walk(bases []*baseMount) error {
	if err := k.find(bases); err != nil {
		return err
	}
	return k.fit(bases, nil)
}

// find finds it in no order.
func (k *walker) find(bases []*baseMount) error {
	k.linked, k.bases = map[inode]wallClass{}, map[string]*baseMount{}
	k.nameOf, k.causes = map[inode]string{}, map[string]string{}
	for _, b := range bases {
		k.bases[b.Path] = b
	}
	for _, b := range bases {
		if err := k.trees.walk(k, b); err != nil {
			return err
		}
	}
	if err := k.otherNames(bases); err != nil {
		return err
	}
	k.closeLinkTargets()
	return nil
}

// fit makes what was found, and what is covered already and stays so, fit in each other.
func (k *walker) fit(bases []*baseMount, stay []want) error {
	k.wants = append(k.wants, stay...)
	var mounted []want
	for _, b := range bases {
		mounted = append(mounted, want{path: b.Path, dir: b.dir, inode: b.inode, base: true})
	}
	k.wants = nest(k.wants, mounted)
	if len(k.wants) > maxMounts {
		return fmt.Errorf("%d places are denied one by one: want at most %d", len(k.wants), maxMounts)
	}
	return nil
}

func (k *walker) base(b *baseMount) error {
	if b.Path != "/" && !k.wall.below(b.Path) {
		return nil
	}
	st, err := statFD(b.tree)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", b.Path, err)
	}
	parent := wallOpen
	if b.Path != "/" {
		parent = k.wall.class(path.Dir(b.Path))
	}
	class := k.wall.class(b.Path)
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if class != parent {
		k.want(want{path: b.Path, class: class, parent: parent, dir: dir, inode: inodeOf(&st)})
	}
	if !dir {
		return nil
	}
	fd, err := openBeneath(b.tree, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil && k.skips(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", b.Path, err)
	}
	return k.dir(fd, b.Path, class, 0)
}

// dir walks one directory and closes fd.
func (k *walker) dir(fd int, p string, class wallClass, depth int) error {
	defer unix.Close(fd)
	if depth > maxDepth {
		return fmt.Errorf("directories lie deeper than %d in each other", maxDepth)
	}
	var below []dirent
	err := readDirents(fd, make([]byte, 16<<10), func(e dirent) error {
		if err := k.look(maxWalk); err != nil {
			return err
		}
		enter, err := k.entry(fd, pathIn(p, e.name), e, class)
		if enter {
			below = append(below, e)
		}
		return err
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("cannot look through %s: %w", chat.Quote(p), err)
	}
	for _, e := range below {
		sub, err := k.open(fd, e.name)
		if k.skips(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", chat.Quote(path.Join(p, e.name)), err)
		}
		full := path.Join(p, e.name)
		if err := k.dir(sub, full, k.wall.step(class, full), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// pathIn is path.Join for a folded directory and a name, which need no folding.
func pathIn(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

// gone reports whether an entry was removed or replaced meanwhile. Its successor is a later file,
// which the watch guards.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// entry checks one name and reports whether it is a directory to enter.
func (k *walker) entry(dir int, p string, e dirent, parent wallClass) (enter bool, err error) {
	if k.bases[p] != nil {
		return false, nil
	}
	class := k.wall.step(parent, p)
	if class == wallOpen && parent == wallOpen && e.kind != unix.DT_UNKNOWN {
		return e.kind == unix.DT_DIR && k.wall.below(p), nil
	}
	var st unix.Statx_t
	if err := unix.Statx(dir, e.name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		if k.skips(err) {
			return false, nil
		}
		return false, fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK {
		if class == wallClosed && st.Uid != k.uid {
			k.links = append(k.links, p)
		}
		return false, nil // its own name is nothing to cover; what it leads to has its own
	}
	if class != parent {
		k.want(want{path: p, class: class, parent: parent, dir: kind == unix.S_IFDIR, inode: inodeOf(&st)})
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 && class != wallOpen {
		k.linked[inodeOf(&st)] = max(class, k.linked[inodeOf(&st)])
		k.linkAt = append(k.linkAt, p)
		if k.nameOf != nil {
			k.nameOf[inodeOf(&st)] = p
		}
	}
	return kind == unix.S_IFDIR, nil
}
