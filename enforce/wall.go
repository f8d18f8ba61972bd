package enforce

import (
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// wallClass is what the kernel does with a file for every process of a session.
type wallClass = filerules.Class

const (
	wallOpen     = filerules.Open
	wallReadOnly = filerules.ReadOnly
	wallClosed   = filerules.Closed
)

// ruleWall tells the class of each path by the rules of one chat. A path has the
// class of its directory until a rule says otherwise; see specs/0003, "The walls".
type ruleWall struct {
	rules *filerules.Ruleset
	// any: some deny has force. exceptions: some allow may open what a deny around it closes.
	any, exceptions bool
	// roots are directories that everything a deny is about lies in; floating says
	// that there is none for some deny.
	roots    []string
	floating bool
	// denyDirs are the directories of denies that may be links. ways are those, all around them,
	// and the links that they led through: one that is made there leads a deny elsewhere.
	denyDirs  []string
	linkPaths map[string]bool
}

func newRuleWall(rs *filerules.Ruleset) *ruleWall {
	w := &ruleWall{rules: rs, linkPaths: map[string]bool{}}
	for _, c := range rs.Rules() {
		switch {
		case c.Inert:
		case c.Effect == filerules.Allow:
			w.exceptions = true
		case c.Ops&kernelOps != 0:
			w.any = true
			w.addRoots(c.Matchers)
		}
	}
	return w
}

// addRoots notes where the matchers of a deny may find something.
func (w *ruleWall) addRoots(matchers []filerules.Matcher) {
	for _, m := range matchers {
		w.roots = append(w.roots, m.Prefix)
		w.addLinkPath(m.Prefix)
		w.floating = w.floating || m.Prefix == "/"
	}
}

// addLinkPath notes a directory that a deny is about, or a link to one, and those around it.
func (w *ruleWall) addLinkPath(p string) {
	for at := p; at != "/" && !w.linkPaths[at]; at = path.Dir(at) {
		w.linkPaths[at] = true
	}
}

// step is the class of p, whose directory has the class parent.
func (w *ruleWall) step(parent wallClass, p string) wallClass {
	return w.rules.Step(filerules.PathClass{Class: parent}, p).Class
}

// class is the class of an absolute, folded path.
func (w *ruleWall) class(p string) wallClass { return w.rules.ClassOf(p).Class }

// below reports whether a deny may be about dir or something under it.
func (w *ruleWall) below(dir string) bool {
	if w.floating || dir == "/" {
		return true
	}
	for _, root := range w.roots {
		if under(root, dir) || under(dir, root) {
			return true
		}
	}
	return false
}

// under reports whether p is dir or below it.
func under(p, dir string) bool {
	return chat.Within(p, dir)
}

// rest is the way from dir to p, which is at or under it; empty for dir itself.
func rest(p, dir string) string { return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/") }

// kernelOps are those that the kernel tells apart from others.
const kernelOps = filerules.Kernel

// Needed reports whether the rules of an agent have a deny that the kernel keeps. It
// does not hang on the home, so nothing is compiled for it.
func Needed(p *filerules.Policy, agent string) bool {
	return slices.ContainsFunc(p.Rules(agent), func(r filerules.Rule) bool { return r.Effect == filerules.Deny && r.Ops&kernelOps != 0 })
}

// NeededBy reports whether a policy has such a deny, for one of its agents or without.
func NeededBy(p *filerules.Policy) bool {
	return slices.ContainsFunc(append(p.Agents(), "*"), func(agent string) bool { return Needed(p, agent) })
}
