package keeper

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
)

// wallClass is what the kernel does with a file for every process of a session.
type wallClass uint8

const (
	wallOpen     wallClass = iota // as its mode says
	wallReadOnly                  // EROFS for who would change it
	wallClosed                    // EACCES or EPERM for who would read or change it
)

func (c wallClass) String() string { return [...]string{"open", "read-only", "closed"}[c] }

// ruleWall tells the class of each path by the rules of one chat. A path has the
// class of its directory until a rule says otherwise; see specs/0003, "The walls".
type ruleWall struct {
	rules *access.Ruleset
	// any: some deny has force. writes: some deny is of write or edit. islands: some
	// allow may open what a deny around it closes.
	any, writes, islands bool
	// roots are directories that everything a deny is about lies in; floating says
	// that there is none for some deny.
	roots    []string
	floating bool
}

func newRuleWall(rs *access.Ruleset) *ruleWall {
	w := &ruleWall{rules: rs}
	for _, c := range rs.Rules() {
		switch {
		case c.Inert:
		case c.Effect == access.Allow:
			w.islands = true
		case c.Ops&keptOps != 0:
			w.any = true
			w.writes = w.writes || c.Ops&(access.Write|access.Edit) != 0
			w.reach(c.Matchers)
		}
	}
	return w
}

// reach notes where the matchers of a deny may find something.
func (w *ruleWall) reach(matchers []access.Matcher) {
	for _, m := range matchers {
		w.roots = append(w.roots, m.Prefix)
		w.floating = w.floating || m.Prefix == "/"
	}
}

// step is the class of p, whose directory has the class parent.
func (w *ruleWall) step(parent wallClass, p string) wallClass {
	bash := w.rules.JudgeName(p, access.Bash)
	if bash.Denied() || parent == wallClosed && bash.Rule == nil {
		return wallClosed
	}
	if !w.writes {
		return wallOpen
	}
	write, edit := w.rules.JudgeName(p, access.Write), w.rules.JudgeName(p, access.Edit)
	if write.Denied() || edit.Denied() || parent == wallReadOnly && (write.Rule == nil || edit.Rule == nil) {
		return wallReadOnly
	}
	return wallOpen
}

// class is the class of an absolute, folded path.
func (w *ruleWall) class(p string) wallClass {
	c := w.step(wallOpen, "/")
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			c = w.step(c, p[:i])
		}
	}
	if p != "/" {
		c = w.step(c, p)
	}
	return c
}

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

// kernelPlaces hold no files that a rule could keep: what is there is the kernel's or
// chatd's own (shims.InsideDir, shims.InsideRun), and a session does not start without it.
var kernelPlaces = []string{"/proc", "/sys", "/dev", "/opt/chatd", "/run/chat"}

// Check refuses a policy with a rule that no kernel wall of this host could
// keep, for one of its agents or without, and names the rule.
func Check(p *access.Policy) error {
	var errs []error
	seen := map[string]bool{}
	for _, agent := range append(p.Agents(), "*") {
		rs, err := p.For(access.Scope{Agent: agent, Home: "/home/user"})
		if err != nil {
			return err
		}
		for _, c := range rs.Rules() {
			if why := unkeepable(c); why != "" && !seen[c.Place] {
				seen[c.Place] = true
				errs = append(errs, fmt.Errorf("cannot keep rule %s (%s): %s: %w", chat.Quote(c.Rule.String()), c.Place, why, chat.ErrUnsupported))
			}
		}
	}
	return errors.Join(errs...)
}

// unkeepable says why the kernel cannot keep a rule; empty if it can.
func unkeepable(c access.Compiled) string {
	if c.Effect != access.Deny || c.Inert {
		return ""
	}
	for _, m := range c.Matchers {
		for _, place := range kernelPlaces {
			if m.Kind == access.KindSubtree && c.Ops&keptOps != 0 && (under(m.Path, place) || under(place, m.Path)) {
				return "a session does not start without " + path.Clean(place)
			}
		}
	}
	return ""
}

// keptOps are those that the kernel tells apart from others.
const keptOps = access.Bash | access.Write | access.Edit

// Needed reports whether the rules of an agent have a deny that the kernel keeps. It
// does not hang on the home, so nothing is compiled for it.
func Needed(p *access.Policy, agent string) bool {
	return slices.ContainsFunc(p.Rules(agent), func(r access.Rule) bool { return r.Effect == access.Deny && r.Ops&keptOps != 0 })
}

// NeededBy reports whether a policy has such a deny, for one of its agents or without.
func NeededBy(p *access.Policy) bool {
	return slices.ContainsFunc(append(p.Agents(), "*"), func(agent string) bool { return Needed(p, agent) })
}
