package filerules

import (
	"os"
	"path"
	"strings"
)

// maxLinks is how many symbolic links the kernel follows in a path (path_resolution(7)).
const maxLinks = 40

// Physical is the name that symbolic links lead to, as far as the caller can see:
// what is not there, may not be looked at or goes in a circle stays as it is
// written. It only reads links, it opens nothing; by the time somebody opens the
// name it may lead elsewhere.
func Physical(p string) string { return Follow(p, func(string) {}) }

// Follow is [Physical], and tells each link on the way.
func Follow(p string, link func(name string)) string {
	todo := strings.Split(p, "/")
	done := "/"
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, name)
		target, err := os.Readlink(next)
		if err != nil || links == maxLinks {
			done = next
			continue
		}
		links++
		link(next)
		if path.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done
}
