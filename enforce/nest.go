package enforce

import (
	"slices"

	"github.com/chatd/chatd/sys"
)

// inode identifies a file under all its names.
type inode struct {
	major, minor uint32
	ino          uint64
}

// want is a path whose class differs from its directory's, and so a mount that must exist.
type want struct {
	path          string
	class, parent wallClass
	dir           bool
	inode         inode
	// base: one of bubblewrap's mounts is here, inside a mask. The mask would show the directory
	// below that mount, so the mount is copied along.
	base bool
}

// isException reports a place that is opened inside one that is covered.
func (w want) isException() bool { return w.class < w.parent }

// needsMountPoint reports a want whose mount goes over an empty place in the cover around it,
// not over the file itself.
func (w want) needsMountPoint() bool { return w.base || w.isException() && w.parent == wallClosed }

// byPath sorts a directory before what is in it, and of one path the strictest first.
func byPath(a, b want) int {
	if c := sys.ComparePaths(a.path, b.path); c != 0 {
		return c
	}
	return int(b.class) - int(a.class)
}

// nest makes the wants of a look fit in each other: sorted, one for a path, each with
// the class of what is around it as its parent. What has several classes, as the target
// of a closed link, has the strictest, with all that is in it. The mounts in bases that
// lie in a cover are wanted too.
func nest(wants []want, bases []want) []want {
	wants = append(slices.Clone(wants), bases...)
	slices.SortStableFunc(wants, byPath)
	var nested, around []want
	for i := 0; i < len(wants); i++ {
		w := wants[i]
		for ; i+1 < len(wants) && wants[i+1].path == w.path; i++ {
			if wants[i+1].base { // its class is that of the want at the same path
				w.base = true
			}
		}
		for len(around) > 0 && !under(w.path, around[len(around)-1].path) {
			around = around[:len(around)-1]
		}
		outer := wallOpen
		if len(around) > 0 {
			outer = around[len(around)-1].class
		}
		covered, bare := len(around) > 0, w.base && w.class == wallOpen && w.parent == wallOpen
		if bare { // no rule is about it
			w.class, w.parent = outer, outer
		}
		w.base = w.base && covered
		comesAlong := w.base && w.class == outer && outer != wallClosed
		stricter := w.class > outer
		opened := w.class < outer && w.parent == outer
		if !comesAlong && !stricter && !opened {
			continue
		}
		w.parent = outer
		nested, around = append(nested, w), append(around, w)
	}
	return nested
}

// subtree is how many of sorted wants lie at or below the first.
func subtree(wants []want) int {
	n := 1
	for n < len(wants) && under(wants[n].path, wants[0].path) {
		n++
	}
	return n
}
