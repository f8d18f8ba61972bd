package pathclass

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// Place is a path whose class differs from its directory's, and so a mount that must exist.
type Place struct {
	Path          string
	Class, Parent filerules.Class
	Dir           bool
	sys.Inode     // embedded, for the flat JSON of a saved session
	// Base: one of bubblewrap's mounts is here, inside a mask. The mask would show the directory
	// below that mount, so the mount is copied along.
	Base bool
}

// IsException reports a place that is opened inside one that is masked.
func (w Place) IsException() bool { return w.Class < w.Parent }

// NeedsMountPoint reports a want whose mount goes over an empty place in the mask around it, not
// over the file itself.
func (w Place) NeedsMountPoint() bool {
	return w.Base || w.IsException() && w.Parent == filerules.Closed
}

// ByPath sorts a directory before what is in it, and of one path the strictest first.
func ByPath(a, b Place) int {
	if c := sys.ComparePaths(a.Path, b.Path); c != 0 {
		return c
	}
	return int(b.Class) - int(a.Class)
}

// nest makes the wants of a walk fit in each other: sorted, one for a path, each with the class of
// the want around it as its parent. A path with several classes, such as the target of a closed
// link, gets the strictest, with all that is in it. The mounts in bases that lie in a mask are
// wanted too.
func nest(wants []Place, bases []Place) []Place {
	wants = append(slices.Clone(wants), bases...)
	slices.SortStableFunc(wants, ByPath)
	var nested, around []Place
	for i := 0; i < len(wants); i++ {
		w := wants[i]
		for ; i+1 < len(wants) && wants[i+1].Path == w.Path; i++ {
			if wants[i+1].Base { // its class is that of the want at the same path
				w.Base = true
			}
		}
		for len(around) > 0 && !chat.Within(w.Path, around[len(around)-1].Path) {
			around = around[:len(around)-1]
		}
		outer := filerules.Open
		if len(around) > 0 {
			outer = around[len(around)-1].Class
		}
		masked := len(around) > 0
		if w.Base && w.Class == filerules.Open && w.Parent == filerules.Open { // no rule is about it
			w.Class, w.Parent = outer, outer
		}
		w.Base = w.Base && masked
		comesAlong := w.Base && w.Class == outer && outer != filerules.Closed
		stricter := w.Class > outer
		opened := w.Class < outer && w.Parent == outer
		if !comesAlong && !stricter && !opened {
			continue
		}
		w.Parent = outer
		nested, around = append(nested, w), append(around, w)
	}
	return nested
}
