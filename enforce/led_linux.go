package enforce

import (
	"path"
	"slices"

	"github.com/chatd/chatd/filerules"
)

// maxLed bounds how many directories one chat's links may add to its rules while its session
// is up. Links that it makes later count from its next session on, or from the next rules.
const maxLed = 64

// led is where links led from the directories of denies, since the session began. A deny is
// about all of it: a chat that makes a link lead elsewhere opens nothing that it led to, and
// nothing that it leads to now.
type led struct {
	To map[string][]string `json:"to,omitempty"`
	// Added counts what came after the rules did.
	Added int `json:"added,omitempty"`
}

// follower looks where links lead for one compilation. It sees each lead to one place.
type follower struct {
	led    *led
	home   string
	needed []string // nil until a link leads somewhere
	now    map[string]string
	ways   map[string]bool // the links that were followed
	asked  []string        // the directories of denies
}

func newFollower(l *led, home string) *follower {
	return &follower{led: l, home: home, now: map[string]string{}, ways: map[string]bool{}}
}

// isNeeded reports whether something that no session starts without lies there.
func (f *follower) isNeeded(p string) bool {
	if f.needed == nil { // It looks into directories of the host, see [compile].
		_ = elsewhere(func() error { f.needed = neededPaths(f.home); return nil })
	}
	return slices.ContainsFunc(f.needed, func(n string) bool { return under(n, p) })
}

// resolve is an filerules.Scope's Resolve. What no session starts without is not what a link
// leads to: nobody asked for that, and a chat would lock itself out.
func (f *follower) resolve(p string) string {
	if real, ok := f.now[p]; ok {
		return real
	}
	real := filerules.Follow(p, func(link string) { f.ways[link] = true })
	if clean := path.Clean(p); p != f.home && real != clean && (inKernelPlace(real) || f.isNeeded(real)) {
		real = clean
	}
	f.now[p] = real
	return real
}

// before is an filerules.Scope's Before. It remembers where the directory leads now.
func (f *follower) before(dir string) []string {
	f.asked = append(f.asked, dir)
	if real := f.resolve(dir); real != dir && !slices.Contains(f.led.To[dir], real) {
		if f.led.To == nil {
			f.led.To = map[string][]string{}
		}
		f.led.To[dir] = append(f.led.To[dir], real)
		f.led.Added++
	}
	return f.led.To[dir]
}

// leadsElsewhere reports whether some directory that a deny is about leads where it never
// led, as the session sees it, and there is room to follow it.
func (k *kept) leadsElsewhere() bool {
	if k.led.Added >= maxLed {
		return false
	}
	f := newFollower(&k.led, k.order.Home)
	return slices.ContainsFunc(k.wall.asked, func(dir string) bool {
		real := f.resolve(dir)
		return real != dir && !slices.Contains(k.led.To[dir], real)
	})
}
