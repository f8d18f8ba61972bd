package unshare

import (
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Trees are the files for which [Stage] makes overlays. All paths are absolute and clean.
type Trees struct {
	// Dir is a directory of root's where the overlays are attached meanwhile.
	Dir string
	// Empty are empty directories for the second layer. One on the file system of the first
	// layer preserves that layer's device and inode numbers.
	Empty []string
	// Shared are the files and directories that get inodes of their own.
	Shared []string
	// Through are the paths without an overlay, even inside a shared one.
	Through []string
	// Mounts are the mount points of the namespace that [Stage] is called in.
	Mounts []string
	// Lowers are directories that are one layer for all that lies in them; elsewhere it
	// is the first directory below the mount point.
	Lowers []string
}

// place is one path with the layer whose overlay shows it. Without a layer it is bound
// directly.
type place struct {
	path, lower string
}

// source is one path of Shared as it is on this host.
type source struct {
	path string
	dir  bool
}

// plan returns the paths to bind, each directory before its content, with the layers. A mount
// below a shared directory gets a layer of its own: an overlay does not show it.
func (t Trees) plan(sources []source) []place {
	var all []place
	for _, s := range sources {
		if !t.seenIn(sources, s) {
			all = append(all, place{s.path, t.lowerOf(s)})
		}
	}
	for _, p := range t.Through {
		if slices.ContainsFunc(sources, func(s source) bool { return s.dir && chat.Within(p, s.path) }) {
			all = append(all, place{path: p})
		}
	}
	slices.SortStableFunc(all, func(a, b place) int { return strings.Compare(a.path+"/", b.path+"/") })
	return slices.CompactFunc(all, func(a, b place) bool { return a.path == b.path })
}

// seenIn reports whether the overlay over another source around s shows s too, so that s needs
// no mount of its own.
func (t Trees) seenIn(sources []source, s source) bool {
	return slices.ContainsFunc(sources, func(o source) bool {
		return o.dir && o.path != s.path && chat.Within(s.path, o.path) &&
			t.mountOf(s.path) == t.mountOf(o.path)
	})
}

// maxOfLayer is how many sources of one layer are bound one by one. bubblewrap reads all
// mounts again for each of its own.
const maxOfLayer = 32

// gather replaces the sources of a layer by the layer itself, if they are many.
func (t Trees) gather(sources []source) []source {
	count := map[string]int{}
	for _, s := range sources {
		count[t.lowerOf(s)]++
	}
	var all []source
	for _, s := range sources {
		lower := t.lowerOf(s)
		switch {
		case lower == "" || count[lower] <= maxOfLayer:
			all = append(all, s)
		case !slices.Contains(all, source{lower, true}):
			all = append(all, source{lower, true})
		}
	}
	return all
}

// lowerOf returns the layer for a source: as far out as possible, so that few overlays
// suffice, and never around an empty directory, because layers must not contain each other.
func (t Trees) lowerOf(s source) string {
	innermost := s.path
	if !s.dir {
		innermost = path.Dir(s.path)
	}
	mount := t.mountOf(s.path)
	if mount == s.path && !s.dir {
		return "" // a file that is a mount: there is no directory around it
	}
	for _, l := range t.Lowers {
		if chat.Within(innermost, l) && chat.Within(l, mount) {
			return l
		}
	}
	lower := mount
	rest := strings.Trim(strings.TrimPrefix(innermost, mount), "/")
	for rest != "" && (lower == "/" || t.emptyFor(lower) == "") {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		lower = path.Join(lower, name)
	}
	return lower
}

// emptyFor is the last empty directory that does not lie in lower.
func (t Trees) emptyFor(lower string) string {
	for _, e := range slices.Backward(t.Empty) {
		if !chat.Within(e, lower) {
			return e
		}
	}
	return ""
}

// mountOf is the mount point that p lies in, or is.
func (t Trees) mountOf(p string) string {
	at := "/"
	for _, m := range t.Mounts {
		if chat.Within(p, m) && len(m) > len(at) {
			at = m
		}
	}
	return at
}

// below are the mount points in a directory that need overlays too.
func (t Trees) below(dir string) []string {
	var all []string
	for _, m := range t.Mounts {
		if m != dir && chat.Within(m, dir) && !t.goesThrough(m) {
			all = append(all, m)
		}
	}
	return all
}

// goesThrough reports whether p is in Through, or lies below a path of it.
func (t Trees) goesThrough(p string) bool {
	return slices.ContainsFunc(t.Through, func(dir string) bool { return chat.Within(p, dir) })
}
