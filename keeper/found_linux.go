package keeper

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// foundDirs is where directories are in one session. What was found before one was moved is
// old: it counts only of a directory that is gone.
type foundDirs struct {
	dirs map[handle]foundDir
	age  int
}

type foundDir struct {
	paths []string
	age   int
}

// note notes that a directory was found now, at rel in a tree at root.
func (f *foundDirs) note(dir handle, root, rel string) {
	if f.dirs == nil || len(f.dirs) > mostFound {
		f.dirs = map[handle]foundDir{}
	}
	d := f.dirs[dir]
	if d.age != f.age {
		d = foundDir{age: f.age}
	}
	if p := path.Join(root, rel); !slices.Contains(d.paths, p) {
		d.paths = append(slices.Clip(d.paths), p)
	}
	f.dirs[dir] = d
}

// follow notes where a directory is that was made in another.
func (f *foundDirs) follow(at dirName, child handle) {
	d, ok := f.dirs[at.dir]
	if !ok {
		return
	}
	var paths []string
	for _, p := range d.paths {
		paths = append(paths, path.Join(p, at.name))
	}
	f.dirs[child] = foundDir{paths, d.age}
}

// places are where a name is in the session.
func (s *watched) places(n dirName) (all []string) {
	d, ok := s.where.dirs[n.dir]
	if !ok || d.age != s.where.age {
		for _, t := range s.trees {
			if t.fsid == n.dir.fsid() {
				if rel, ok := t.find(n.dir); ok {
					s.where.note(n.dir, t.Path, rel)
				}
			}
		}
		d = s.where.dirs[n.dir] // what was known of one that is gone
	}
	for _, p := range d.paths {
		all = append(all, path.Join(p, n.name))
	}
	return all
}

// find is where a directory lies in this mount, if it does.
func (t watchedTree) find(dir handle) (string, bool) {
	fd, err := dir.open(t.fd)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	p, err := pathOf(fd)
	if err != nil {
		return "", false
	}
	// Of a directory outside the mount this is a path from the root of the file
	// system, so the directory that lies there in the mount may be another.
	again, err := openBeneath(t.tree, strings.TrimPrefix(p, "/"), unix.O_PATH)
	if err != nil {
		return "", false
	}
	defer unix.Close(again)
	a, errA := placeOf(fd)
	b, errB := placeOf(again)
	if errors.Join(errA, errB) != nil || inodeOf(&a) != inodeOf(&b) {
		return "", false
	}
	return p, true
}
