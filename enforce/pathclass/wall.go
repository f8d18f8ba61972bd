package pathclass

import (
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Wall tells the class of each path by the rules of one chat. A path has the
// class of its directory until a rule says otherwise; see specs/0003, "The walls".
type Wall struct {
	rules *filerules.Ruleset
	// Any: some deny has force. Exceptions: some allow may open what a deny around it closes.
	Any, Exceptions bool
	// roots are directories that everything a deny is about lies in; floating says
	// that there is none for some deny.
	roots    []string
	floating bool
	// denyDirs are the directories of denies that may be links. linkPaths are those, all around
	// them, and the links that they led through: one that is made there leads a deny elsewhere.
	denyDirs  []string
	linkPaths map[string]bool
}

// New makes the wall of compiled rules.
func New(rs *filerules.Ruleset) *Wall {
	w := &Wall{rules: rs, linkPaths: map[string]bool{}}
	for _, c := range rs.Rules() {
		switch {
		case c.Inert:
		case c.Effect == filerules.Allow:
			w.Exceptions = true
		case c.Ops&filerules.Kernel != 0:
			w.Any = true
			for _, m := range c.Matchers {
				w.roots = append(w.roots, m.Prefix)
				w.addLinkPath(m.Prefix)
				w.floating = w.floating || m.Prefix == "/"
			}
		}
	}
	return w
}

// addLinkPath records a directory that a deny is about, or a link to one, and those around it.
func (w *Wall) addLinkPath(p string) {
	for at := p; at != "/" && !w.linkPaths[at]; at = path.Dir(at) {
		w.linkPaths[at] = true
	}
}

// Leads reports whether a link named p could change the target of a deny.
func (w *Wall) Leads(p string) bool { return w.linkPaths[p] }

// Class is the class of an absolute, folded path.
func (w *Wall) Class(p string) filerules.Class { return w.rules.ClassOf(p).Class }

// Below reports whether a deny may be about dir or something under it.
func (w *Wall) Below(dir string) bool {
	return w.floating || dir == "/" || slices.ContainsFunc(w.roots, func(root string) bool {
		return chat.Within(root, dir) || chat.Within(dir, root)
	})
}

// DependsOn reports whether a deny can match a path below dir because of dir's own name. A deny
// of a last segment alone does not depend on it: the files that it matches are recorded themselves.
// Where exceptions lie inside closed directories, a directory's names decide alone.
func (w *Wall) DependsOn(dir string) bool {
	for _, c := range w.rules.Rules() {
		if c.Effect != filerules.Deny || c.Inert {
			continue
		}
		for _, m := range c.Matchers {
			tail, floats := strings.CutPrefix(m.Glob, "/**/")
			if floats && !w.Exceptions && !strings.Contains(strings.TrimSuffix(tail, "/**"), "/") {
				continue
			}
			if chat.Within(m.Prefix, dir) || chat.Within(dir, m.Prefix) {
				return true
			}
		}
	}
	return false
}

// Needed reports whether the rules of an agent have a deny that the kernel keeps. It
// does not hang on the home, so nothing is compiled for it.
func Needed(p *filerules.Policy, agent string) bool {
	return slices.ContainsFunc(p.Rules(agent), func(r filerules.Rule) bool {
		return r.Effect == filerules.Deny && r.Ops&filerules.Kernel != 0
	})
}

// NeededBy reports whether a policy has such a deny, for one of its agents or without.
func NeededBy(p *filerules.Policy) bool {
	return slices.ContainsFunc(append(p.Agents(), "*"), func(agent string) bool { return Needed(p, agent) })
}
