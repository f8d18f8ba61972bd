package filerules

import (
	"os"
	"path"
	"strings"
)

// maxLinks is how many symbolic links the kernel follows in a path (path_resolution(7)).
const maxLinks = 40

// Physical resolves symbolic links as far as the caller can see: parts that do not exist, may not
// be read or form a loop stay unchanged. It only reads links and opens nothing; the result may be
// outdated by the time the name is opened.
func Physical(p string) string { return Follow(p, func(string) {}) }

// Follow is [Physical], and calls link with each link on the way.
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
