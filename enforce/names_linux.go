package enforce

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// recordName records a file that has, or had, a denied name. While the rules change, it records
// separately what the old and the new rules deny. A denial by the old rules alone ends with them,
// even if its event is read late.
func (w *watch) recordName(s *watchedSession, p string, child handle) {
	if slices.ContainsFunc(s.walls, func(w *pathclass.Wall) bool { return w.Leads(p) }) {
		s.session.relink.Store(true)
		w.recheck(s.session.initProc.chat)
	}
	names := s.namesOf(p)
	class := classBy(s.walls, names)
	if class == filerules.Open {
		if s.hasExceptions() && s.classOfNames(path.Dir(p)) != filerules.Open {
			w.recheck(s.session.initProc.chat) // the exception needs a mount
		}
		return
	}
	w.recordDenied(s, names, child)
}

// recordDenied records a file by its denied names; nil means that the names are unknown.
func (w *watch) recordDenied(s *watchedSession, names []string, child handle) {
	class := classBy(s.walls, names)
	if child == "" {
		w.end(s.session, errors.New("cannot keep rules on a file system without file handles"))
		return
	}
	by := ""
	if len(names) > 0 {
		by = names[0]
	}
	if s.classOfHandle(child) < class {
		w.write(s, journalLine{Child: []byte(child), Class: class, By: []byte(by)})
	}
	walls := s.walls
	if s.before != nil {
		remember(s.before, child, denial{classBy(walls[:1], names), by})
		walls = walls[1:]
	}
	remember(s.denied, child, denial{classBy(walls, names), by})
	if !s.fits() {
		w.end(s.session, fmt.Errorf("more than %d files were made under denied names", maxDenied))
	}
	w.recheck(s.session.initProc.chat)
}

// recordFound records a closed file that a walk found: name in dir, which the rules close as by.
func (w *watch) recordFound(s *watchedSession, b *pathclass.Base, dir int, name, by string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(s.trees, func(t watchedTree) bool { return t.Base == b })
	h, err := handleIn(dir, name, s.trees[i].fsid)
	if sys.Gone(err) {
		return nil
	}
	if d := (denial{filerules.Closed, by}); err == nil && s.denied[h].class < d.class {
		s.denied[h] = d
		w.write(s, journalLine{Child: []byte(h), Class: d.class, By: []byte(by)})
	}
	if !s.fits() {
		err = errors.Join(err, fmt.Errorf("more than %d files are closed one by one", maxDenied))
	}
	return err
}

// denial is the class that a file has for ever, and the name that gave it; empty if unknown.
type denial struct {
	class filerules.Class
	by    string
}

func remember(all map[handle]denial, h handle, d denial) {
	if all[h].class < d.class {
		all[h] = d
	}
}

// classOfHandle is the strictest class recorded for a file.
func (s *watchedSession) classOfHandle(h handle) filerules.Class {
	return max(s.denied[h].class, s.before[h].class)
}

// fits reports whether the records are not too many, after it has dropped those of files that are gone.
func (s *watchedSession) fits() bool {
	if max(len(s.denied), len(s.before)) > maxDenied {
		s.forgetGone()
	}
	return max(len(s.denied), len(s.before)) <= maxDenied
}

// hasExceptions reports whether a rule opens a path inside a closed directory.
func (s *watchedSession) hasExceptions() bool {
	return slices.ContainsFunc(s.walls, func(w *pathclass.Wall) bool { return w.Exceptions })
}

// forgetGone drops the records of files that no longer exist.
func (s *watchedSession) forgetGone() {
	isGone := func(h handle, _ denial) bool {
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

// recordMoves records the earlier names of directories; each pair is the present name and an
// earlier one. It keeps a pair only if a deny can apply through one of the directory's names.
func (w *watch) recordMoves(s *watchedSession, pairs [][2]string, all bool) {
	pairs = slices.DeleteFunc(pairs, func(p [2]string) bool {
		known := slices.Contains(s.moved[p[0]], p[1])
		if !known {
			s.moved[p[0]] = append(s.moved[p[0]], p[1])
		}
		return known
	})
	var matter, vain [][2]string
	for _, p := range pairs { // after all are in s.moved: one move can give another its meaning
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
			w.end(s.session, errors.New("too many directories were moved"))
		}
	}
}

// mayMatter reports whether a deny can match a path below a directory because of one of the
// directory's names.
func (s *watchedSession) mayMatter(dir string) bool {
	names := s.namesOf(dir)
	return names == nil || slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(s.walls, func(wall *pathclass.Wall) bool { return wall.DependsOn(name) })
	})
}

// sessionRoot is one tree and the session that has it.
type sessionRoot struct {
	watchedTree
	s *watchedSession
}
