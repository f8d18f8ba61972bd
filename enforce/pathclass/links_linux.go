package pathclass

import (
	"path"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// MaxLinkTargets bounds how many directories the links of one chat may add to its rules during
// a session. Further links take effect in the next session, or when the rules change.
const MaxLinkTargets = 64

// Links holds the targets of links in the directories of denies since the session began.
// A deny covers them all: by changing a link, a chat opens neither the old target nor the new one.
type Links struct {
	To map[string][]string `json:"to,omitempty"`
	// Added counts the targets found after the rules were loaded.
	Added int `json:"added,omitempty"`
}

// follower resolves links during one compilation. It resolves each link once, so that the
// compiled rules agree with each other.
type follower struct {
	targets  *Links
	home     string
	needed   []string // nil until a link leads somewhere
	now      map[string]string
	links    map[string]bool // the links that were followed
	denyDirs []string        // the directories of denies
}

func newFollower(l *Links, home string) *follower {
	return &follower{targets: l, home: home, now: map[string]string{}, links: map[string]bool{}}
}

// isNeeded reports whether p contains a path that every session needs to start.
func (f *follower) isNeeded(p string) bool {
	if f.needed == nil { // neededPaths reads directories of the host, see [Compile]
		_ = sys.InOwnNamespace(func() error { f.needed = neededPaths(f.home); return nil })
	}
	return slices.ContainsFunc(f.needed, func(n string) bool { return chat.Within(n, p) })
}

// resolve is the Resolve of a [filerules.Scope]. It ignores a link to a path that every session
// needs to start: a deny of that path would lock the chat out.
func (f *follower) resolve(p string) string {
	if real, ok := f.now[p]; ok {
		return real
	}
	real := filerules.Follow(p, func(link string) { f.links[link] = true })
	if clean := path.Clean(p); p != f.home && real != clean && (inKernelPath(real) || f.isNeeded(real)) {
		real = clean
	}
	f.now[p] = real
	return real
}

// before is the Before of a [filerules.Scope]. It records the present target of the directory.
func (f *follower) before(dir string) []string {
	f.denyDirs = append(f.denyDirs, dir)
	if real := f.resolve(dir); real != dir && !slices.Contains(f.targets.To[dir], real) {
		if f.targets.To == nil {
			f.targets.To = map[string][]string{}
		}
		f.targets.To[dir] = append(f.targets.To[dir], real)
		f.targets.Added++
	}
	return f.targets.To[dir]
}

// LinksMoved reports whether the directory of a deny has a new target, as the session sees it,
// and [MaxLinkTargets] leaves room for that target.
func (w *Wall) LinksMoved(l *Links, home string) bool {
	if l.Added >= MaxLinkTargets {
		return false
	}
	f := newFollower(l, home)
	return slices.ContainsFunc(w.denyDirs, func(dir string) bool {
		real := f.resolve(dir)
		return real != dir && !slices.Contains(l.To[dir], real)
	})
}
