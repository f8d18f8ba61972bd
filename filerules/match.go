package filerules

import (
	"path"
	"strings"
)

// matchPath reports whether the segments are those of an absolute, folded path; a ** is any number
// of them. Like a * in one name, only the last ** before a mismatch can have more of the path.
func matchPath(segs []segment, p string) bool {
	if p == "/" {
		return false // it has no segment
	}
	i, at := 0, 0       // segs[i:] are to match p[at:]
	deep, from := -1, 0 // the last **, and where what follows it was tried
	for {
		switch {
		case i == len(segs) && at == len(p):
			return true
		case i < len(segs) && segs[i].deep:
			deep, from = i, at
			i++
			continue
		case i < len(segs) && at < len(p):
			if end := segmentEnd(p, at); segs[i].matches(p[at+1 : end]) {
				i, at = i+1, end
				continue
			}
		}
		if deep < 0 || from == len(p) {
			return false
		}
		from = segmentEnd(p, from)
		i, at = deep+1, from
	}
}

// segmentEnd is the end of the segment before which p has a slash at from.
func segmentEnd(p string, from int) int {
	if n := strings.IndexByte(p[from+1:], '/'); n >= 0 {
		return from + 1 + n
	}
	return len(p)
}

func (s segment) matches(name string) bool {
	if !s.wild {
		return s.literal == name
	}
	return matchName(s.glob, name)
}

// matchName is [path.Match] with a pattern that was checked.
func matchName(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}
