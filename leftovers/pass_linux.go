package leftovers

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/scan"
)

// add takes over a find.
func (p *pass) add(f scan.Find) {
	i := slices.IndexFunc(p.Found, func(l Left) bool { return l.UID == f.UID })
	if i < 0 {
		if len(p.Found) == maxLeft {
			p.More++
			return
		}
		i = len(p.Found)
		p.Found = append(p.Found, Left{UID: f.UID})
	}
	l := &p.Found[i]
	l.Files += f.Files
	l.First, l.Mounts = addNew(l.First, f.First), addNew(l.Mounts, f.Mount)
}

// addNew adds one of maxNamed names, unless it is there.
func addNew(names [][]byte, name []byte) [][]byte {
	for _, n := range names {
		if bytes.Equal(n, name) {
			return names
		}
	}
	if len(names) == maxNamed {
		return names
	}
	return append(slices.Clone(names), name)
}

// goOn takes over how a turn ended that began at from.
func (p *pass) goOn(from *scan.Position, end scan.End) {
	p.Unseen += end.Unseen
	if p.Why == "" {
		p.Why = end.Why
	}
	if end.Complete {
		p.At, p.Ended, p.Left, p.Found = nil, time.Now().UTC(), p.Found, nil
		return
	}
	at := end.At
	if at == nil { // it did not come to the first directory
		at = &scan.Position{}
	}
	if from != nil && bytes.Equal(at.Mount, from.Mount) && bytes.Equal(at.Path, from.Path) {
		at = beyond(from)
		p.Unseen++
	}
	p.At = at
}

// beyond is the position after a turn that came no further than to where it began: without that
// directory, and where that did not help, without the one that it is in.
func beyond(from *scan.Position) *scan.Position {
	next := scan.Position{Mount: from.Mount, Path: from.Path, Beyond: true}
	if from.Beyond {
		path := string(from.Path)
		next.Path = []byte(path[:max(strings.LastIndexByte(path, '/'), 0)])
	}
	return &next
}
