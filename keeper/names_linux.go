package keeper

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/access"
)

// follow knows where a directory is that was made right now: where its name is, or nowhere. Who makes
// directories without end, in a session or beside all of them, would else have each of them looked for in
// every session, and every open wait for that. The root of a tree is looked for: it lies where its name does not say.
func (w *watch) follow(e fanEvent) {
	if e.mask&unix.FAN_CREATE == 0 || e.mask&unix.FAN_ONDIR == 0 || e.child == "" || len(w.roots[e.child]) > 0 {
		return
	}
	if _, ok := w.found[e.child]; !ok {
		w.found[e.child] = w.places(e.dir)
	}
}

// named takes in one event about a name.
func (w *watch) named(e fanEvent) {
	if e.mask&unix.FAN_Q_OVERFLOW != 0 {
		for _, s := range w.sessions {
			w.end(s.k, errors.New("the kernel lost events about its files"))
		}
		return
	}
	for _, at := range append(w.places(e.dir), w.places(e.old)...) {
		w.note(at.s, at.path, e)
	}
}

// moved notes that a directory was called otherwise, in each session that saw it.
func (w *watch) moved(e fanEvent) {
	now := w.places(e.dir)
	for _, old := range w.places(e.old) {
		for _, at := range now {
			if at.s == old.s {
				w.rememberMove(at.s, at.path, old.path)
			}
		}
	}
}

// note remembers a file that has, or had, a denied name. While rules change it is told apart which
// of them deny it: what only those before do goes with them, however late this was read.
func (w *watch) note(s *watched, p string, e fanEvent) {
	names := s.namesOf(p)
	class := classBy(s.walls, names)
	if class == wallOpen {
		if s.hasIslands() && s.classOfNames(path.Dir(p)) != wallOpen {
			w.again(s.k.leader.chat) // an exception came to be: its directory has a cover, it has none
		}
		return
	}
	if e.child == "" {
		w.end(s.k, errors.New("the file system names no files: the rules cannot be kept there"))
		return
	}
	if s.known(e.child) < class {
		w.write(s, journalLine{Child: []byte(e.child), Class: class})
	}
	walls := s.walls
	if s.before != nil {
		remember(s.before, e.child, classBy(walls[:1], names))
		walls = walls[1:]
	}
	remember(s.denied, e.child, classBy(walls, names))
	if s.tooMany() {
		s.forgetGone()
	}
	if s.tooMany() {
		w.end(s.k, fmt.Errorf("more than %d files were made under denied names", maxDenied))
	}
	w.again(s.k.leader.chat)
}

func remember(all map[handle]wallClass, h handle, class wallClass) {
	if all[h] < class {
		all[h] = class
	}
}

// known is what is remembered of a file.
func (s *watched) known(h handle) wallClass { return max(s.denied[h], s.before[h]) }

func (s *watched) tooMany() bool { return max(len(s.denied), len(s.before)) > maxDenied }

// hasIslands reports whether some rule opens what is in a closed directory.
func (s *watched) hasIslands() bool {
	return slices.ContainsFunc(s.walls, func(w *ruleWall) bool { return w.islands })
}

// forgetGone drops what is known of files that are no more.
func (s *watched) forgetGone() {
	isGone := func(h handle, _ wallClass) bool {
		for _, t := range s.trees {
			if t.fsid == h.fsid() {
				fd, err := h.open(t.fd)
				if err == nil {
					unix.Close(fd)
				}
				return err == unix.ESTALE
			}
		}
		return true
	}
	maps.DeleteFunc(s.denied, isGone)
	maps.DeleteFunc(s.before, isGone)
}

// rememberMove notes what a directory was called, where that can matter.
func (w *watch) rememberMove(s *watched, now, old string) {
	relevant := false
	for _, wall := range s.walls {
		relevant = relevant || wall.dependsOn(old)
	}
	if !relevant || slices.Contains(s.moved[now], old) {
		return
	}
	s.moved[now] = append(s.moved[now], old)
	w.write(s, journalLine{Now: now, Old: old})
	if len(s.moved) > maxMoved || len(s.moved[now]) > maxNames {
		w.end(s.k, errors.New("too many directories were moved to be kept in mind"))
	}
}

// dependsOn reports whether a deny can be about something below dir because of what
// dir is called. One that is about a last segment alone cannot: what it is about is
// remembered by itself.
func (w *ruleWall) dependsOn(dir string) bool {
	for _, c := range w.rules.Rules() {
		if c.Effect != access.Deny || c.Inert {
			continue
		}
		for _, m := range c.Matchers {
			tail, floats := strings.CutPrefix(m.Glob, "/**/")
			if floats && !strings.Contains(strings.TrimSuffix(tail, "/**"), "/") {
				continue
			}
			if under(m.Prefix, dir) || under(dir, m.Prefix) {
				return true
			}
		}
	}
	return false
}

// rooted is a tree of a session's.
type rooted struct {
	watchedTree
	s *watched
}

// placed is a path in a session.
type placed struct {
	path string
	s    *watched
}

// places are where a name is, in the sessions that can see it.
func (w *watch) places(n dirName) []placed {
	if n.dir == "" {
		return nil
	}
	dirs, ok := w.found[n.dir]
	if !ok {
		dirs = w.findAll(n.dir)
		w.found[n.dir] = dirs
	}
	all := make([]placed, 0, len(dirs))
	for _, d := range dirs {
		all = append(all, placed{path.Join(d.path, n.name), d.s})
	}
	return all
}

// findAll is where a directory is now, in the sessions that can see it. Events about one
// directory come in thousands, also from what no session sees: it is looked for once, until a
// directory is moved; and once in a tree that many sessions have, as /usr.
func (w *watch) findAll(dir handle) []placed {
	var all []placed
	for root, trees := range w.roots {
		if root.fsid() != dir.fsid() {
			continue
		}
		rel, ok := trees[0].find(dir)
		if !ok {
			continue
		}
		for _, t := range trees {
			all = append(all, placed{path.Join(t.Path, rel), t.s})
		}
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
