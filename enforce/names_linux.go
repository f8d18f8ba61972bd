package enforce

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/filerules"
)

// note remembers a file that has, or had, a denied name. While rules change it is told apart which
// of them deny it: what only those before do goes with them, however late this was read.
func (w *watch) note(s *watched, p string, child handle) {
	if s.onWay(p) {
		s.k.relink.Store(true)
		w.again(s.k.leader.chat)
	}
	names := s.namesOf(p)
	class := classBy(s.walls, names)
	if class == wallOpen {
		if s.hasIslands() && s.classOfNames(path.Dir(p)) != wallOpen {
			w.again(s.k.leader.chat) // an exception came to be: its directory has a cover, it has none
		}
		return
	}
	w.noteAs(s, names, child)
}

// noteAs remembers a file by names that are denied; nil are names that nobody can tell.
func (w *watch) noteAs(s *watched, names []string, child handle) {
	class := classBy(s.walls, names)
	if child == "" {
		w.end(s.k, errors.New("the file system names no files: the rules cannot be kept there"))
		return
	}
	if s.known(child) < class {
		w.write(s, journalLine{Child: []byte(child), Class: class})
	}
	walls := s.walls
	if s.before != nil {
		remember(s.before, child, classBy(walls[:1], names))
		walls = walls[1:]
	}
	remember(s.denied, child, classBy(walls, names))
	if s.tooMany() {
		s.forgetGone()
	}
	if s.tooMany() {
		w.end(s.k, fmt.Errorf("more than %d files were made under denied names", maxDenied))
	}
	w.again(s.k.leader.chat)
}

// onWay reports whether a link of that name could lead what a deny is about elsewhere.
func (s *watched) onWay(p string) bool {
	return slices.ContainsFunc(s.walls, func(w *ruleWall) bool { return w.ways[p] })
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

// rememberMoves notes what directories, now at the first name of a pair, were called, where that
// can matter: because of that name, or of one that it had by other moves.
func (w *watch) rememberMoves(s *watched, pairs [][2]string, all bool) {
	pairs = slices.DeleteFunc(pairs, func(p [2]string) bool {
		known := slices.Contains(s.moved[p[0]], p[1])
		if !known {
			s.moved[p[0]] = append(s.moved[p[0]], p[1])
		}
		return known
	})
	var matter, vain [][2]string
	for _, p := range pairs { // with all of them in mind
		if all || s.mayMatter(p[1]) {
			matter = append(matter, p)
		} else {
			vain = append(vain, p)
		}
	}
	for _, p := range vain {
		s.moved[p[0]] = slices.DeleteFunc(s.moved[p[0]], func(old string) bool { return old == p[1] })
		if len(s.moved[p[0]]) == 0 {
			delete(s.moved, p[0])
		}
	}
	for _, p := range matter {
		w.write(s, journalLine{Now: p[0], Old: p[1]})
		if len(s.moved) > maxMoved || len(s.moved[p[0]]) > maxNames {
			w.end(s.k, errors.New("too many directories were moved to be kept in mind"))
		}
	}
}

// mayMatter reports whether a deny can be about something below a directory because of one of
// its names.
func (s *watched) mayMatter(dir string) bool {
	names := s.namesOf(dir)
	return names == nil || slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(s.walls, func(wall *ruleWall) bool { return wall.dependsOn(name) })
	})
}

// dependsOn reports whether a deny can be about something below dir because of what
// dir is called. One that is about a last segment alone cannot: what it is about is
// remembered by itself.
func (w *ruleWall) dependsOn(dir string) bool {
	for _, c := range w.rules.Rules() {
		if c.Effect != filerules.Deny || c.Inert {
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
