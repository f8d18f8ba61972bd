package pathclass

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// Bounds of one walk of a session's trees. Beyond them the session does not start, because the rest
// would have no masks.
var (
	maxWalk   = 2_000_000 // names
	maxDepth  = 1000      // directories in each other
	maxMounts = 20_000    // places to mask
)

// Walker walks the trees of a session as they are below all masks.
type Walker struct {
	Wall   *Wall
	UID    uint32 // the chat's, whose own links say nothing
	Source Source // what Wall was compiled from
	Cache  *Cache
	// Close takes a closed file of a watched mount, which gets no place in Wants: name in the
	// directory dir, at the path by which the rules close it.
	Close func(b *Base, dir int, name, by string) error

	finds
	Causes map[string]string // the denied name of what is closed under another

	bases  map[string]*Base
	in     *Base                // the one that it walks
	nameOf map[sys.Inode]string // the first of linkAt, but for trees that are remembered
	// found, if set, gets each place instead of Wants.
	found func(p string)
	// partial passes over what it may not read.
	partial bool
	// ctx ends it early; nil never does.
	ctx context.Context
}

// finds are what a walk finds.
type finds struct {
	Wants  []Place
	Looked int                           // how many names it examined
	linked map[sys.Inode]filerules.Class // what has a class and more than one name
	linkAt []string                      // where those were found
	links  []string                      // symbolic links of others that are closed
}

func (k *Walker) want(w Place) {
	if k.found != nil {
		k.found(w.Path)
	} else {
		k.Wants = append(k.Wants, w)
	}
}

// look counts one more name.
func (k *Walker) look(max int) error {
	k.Looked++
	switch {
	case k.Looked > max:
		return fmt.Errorf("more than %d files to look through", maxWalk)
	case k.ctx != nil && k.Looked%1024 == 0:
		return context.Cause(k.ctx)
	}
	return nil
}

// open opens a directory for the walk. O_NOATIME needs its owner or root.
func (k *Walker) open(dir int, name string) (int, error) {
	flags := uint64(unix.O_RDONLY | unix.O_DIRECTORY)
	if !k.partial {
		flags |= unix.O_NOATIME
	}
	return sys.OpenBeneath(dir, name, flags)
}

// skips reports whether the walk skips an entry because of err.
func (k *Walker) skips(err error) bool {
	return sys.Gone(err) || k.partial && errors.Is(err, unix.EACCES)
}

// walk finds the wanted masks, in the order of mounting.
func (k *Walker) walk(bases []*Base) error {
	if err := k.Find(bases); err != nil {
		return err
	}
	return k.Fit(bases, nil)
}

// Find finds the wanted masks in no order. [Walker.Fit] puts them in the order of mounting.
func (k *Walker) Find(bases []*Base) error {
	k.linked, k.bases = map[sys.Inode]filerules.Class{}, map[string]*Base{}
	k.nameOf, k.Causes = map[sys.Inode]string{}, map[string]string{}
	for _, b := range bases {
		k.bases[b.Path] = b
	}
	for _, b := range bases {
		if err := k.Cache.walk(k, b); err != nil {
			return err
		}
	}
	if err := k.otherNames(bases); err != nil {
		return err
	}
	k.closeLinkTargets()
	return nil
}

// Fit makes what was found, and what is covered already and stays so, fit in each other.
func (k *Walker) Fit(bases []*Base, stay []Place) error {
	k.Wants = append(k.Wants, stay...)
	var mounted []Place
	for _, b := range bases {
		mounted = append(mounted, Place{Path: b.Path, Dir: b.Dir, Inode: b.Inode, Base: true})
	}
	k.Wants = nest(k.Wants, mounted)
	if len(k.Wants) > maxMounts {
		return fmt.Errorf("%d places are denied one by one: want at most %d", len(k.Wants), maxMounts)
	}
	return nil
}

func (k *Walker) base(b *Base) error {
	k.in = b
	if b.Path != "/" && !k.Wall.Below(b.Path) {
		return nil
	}
	st, err := sys.StatFD(b.Tree)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", b.Path, err)
	}
	parent := filerules.Open
	if b.Path != "/" {
		parent = k.Wall.Class(path.Dir(b.Path))
	}
	class := k.Wall.Class(b.Path)
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if class != parent {
		k.want(Place{Path: b.Path, Class: class, Parent: parent, Dir: dir, Inode: sys.InodeOf(&st)})
	}
	if !dir {
		return nil
	}
	fd, err := sys.OpenBeneath(b.Tree, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil && k.skips(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", b.Path, err)
	}
	return k.dir(fd, b.Path, class, 0, k.entry)
}

// visit looks at one name of a directory and returns the name's class; enter if it is a directory to
// walk too.
type visit func(
	dir int, p string, e dirent, parent filerules.Class,
) (class filerules.Class, enter bool, err error)

// dir walks one directory, which has a class, and closes fd.
func (k *Walker) dir(fd int, p string, class filerules.Class, depth int, see visit) error {
	defer unix.Close(fd)
	if depth > maxDepth {
		return fmt.Errorf("directories lie deeper than %d in each other", maxDepth)
	}
	type inner struct {
		name  string
		class filerules.Class
	}
	var below []inner
	err := readDirents(fd, make([]byte, 16<<10), func(e dirent) error {
		is, enter, err := see(fd, pathIn(p, e.name), e, class)
		if enter {
			below = append(below, inner{e.name, is})
		}
		return err
	})
	if err != nil && !sys.Gone(err) {
		return fmt.Errorf("cannot look through %s: %w", chat.Quote(p), err)
	}
	for _, e := range below {
		sub, err := k.open(fd, e.name)
		if k.skips(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", chat.Quote(pathIn(p, e.name)), err)
		}
		if err := k.dir(sub, pathIn(p, e.name), e.class, depth+1, see); err != nil {
			return err
		}
	}
	return nil
}

// pathIn is path.Join for a folded directory and a name, which need no folding.
func pathIn(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

// entry is the visit that finds places.
func (k *Walker) entry(
	dir int, p string, e dirent, parent filerules.Class,
) (class filerules.Class, enter bool, err error) {
	if err := k.look(maxWalk); err != nil || k.bases[p] != nil {
		return parent, false, err
	}
	class = k.Wall.rules.Step(filerules.PathClass{Class: parent}, p).Class
	if class == filerules.Open && parent == filerules.Open && e.kind != unix.DT_UNKNOWN {
		return class, e.kind == unix.DT_DIR && k.Wall.Below(p), nil
	}
	var st unix.Statx_t
	if err := unix.Statx(dir, e.name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		if k.skips(err) {
			return class, false, nil
		}
		return class, false, fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK {
		if class == filerules.Closed && st.Uid != k.UID {
			k.links = append(k.links, p)
		}
		return class, false, nil // its own name needs no mask; its target has its own
	}
	closes := class == filerules.Closed && k.in.Watched
	switch {
	case closes && kind != unix.S_IFDIR && kind != unix.S_IFREG: // its opens are not asked about
		k.want(Place{Path: p, Class: class, Inode: sys.InodeOf(&st)})
	case closes: // also in a closed directory: a link to the file may be made outside
		if err := k.Close(k.in, dir, e.name, p); err != nil {
			return class, false, err
		}
	case class != parent:
		k.want(Place{Path: p, Class: class, Parent: parent, Dir: kind == unix.S_IFDIR,
			Inode: sys.InodeOf(&st)})
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 && class != filerules.Open {
		k.linked[sys.InodeOf(&st)] = max(class, k.linked[sys.InodeOf(&st)])
		k.linkAt = append(k.linkAt, p)
		if k.nameOf != nil {
			k.nameOf[sys.InodeOf(&st)] = p
		}
	}
	return class, kind == unix.S_IFDIR, nil
}
