package policy

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// maxClosed bounds the denied paths that bubblewrap masks and around which Landlock's grants are
// split.
const maxClosed = 64

// closedWhole are the paths outside the home that rules close as a whole: those of a pattern
// without wildcards, which hold no exception. Landlock grants nothing there, and bubblewrap masks
// those that exist when a session begins.
func closedWhole(rs *filerules.Ruleset) (all []string) {
	home := rs.Scope().Home
	for _, c := range rs.Rules() {
		if !denies(c) || c.Ops&filerules.Bash == 0 {
			continue
		}
		for _, m := range c.Matchers {
			if m.Kind != filerules.KindSubtree || chat.Within(m.Path, home) ||
				chat.Within(home, m.Path) || len(all) == maxClosed || slices.Contains(all, m.Path) {
				continue
			}
			if rs.ClassOf(m.Path).Class == filerules.Closed && !mayOpenIn(rs, m.Path) {
				all = append(all, m.Path)
			}
		}
	}
	return all
}

// mayOpenIn reports whether some rule may allow a path in dir.
func mayOpenIn(rs *filerules.Ruleset, dir string) bool {
	near := func(m filerules.Matcher) bool {
		return chat.Within(m.Prefix, dir) || chat.Within(dir, m.Prefix)
	}
	return slices.ContainsFunc(rs.Rules(), func(c filerules.CompiledRule) bool {
		return c.Effect == filerules.Allow && !c.Inert && slices.ContainsFunc(c.Matchers, near)
	})
}

// byKernel returns the denial that closes a name to the kernel, or the zero Verdict.
func (r *Rules) byKernel(name string) filerules.Verdict {
	h := r.ClassOf(name)
	if h.Class == filerules.Open || h.Class == filerules.ReadOnly || !filerules.Enforced(name) {
		return filerules.Verdict{}
	}
	h.Why.ByKernel, h.Why.Name = true, name
	return h.Why
}

// KeptBy names the mechanisms that enforce a denial in a session: the enforcer, for every path of
// which the kernel can tell; of paths closed as a whole bubblewrap, for those that it masked
// when the session began, and Landlock, for those that its grants leave out.
func (r *Rules) KeptBy(v filerules.Verdict, masked, leftOut []string) (by []string) {
	if !v.Denied() || v.Name == "" || !filerules.Enforced(v.Name) {
		return nil
	}
	switch h := r.ClassOf(v.Name); {
	case h.Class == filerules.Closed,
		h.Class == filerules.ReadOnly && v.Rule != nil && v.Rule.Ops&filerules.Read == 0:
		by = append(by, "chatd-enforce")
	}
	around := func(d string) bool { return chat.Within(v.Name, d) }
	if slices.ContainsFunc(masked, around) {
		by = append(by, "bubblewrap")
	}
	if slices.ContainsFunc(leftOut, around) {
		by = append(by, string(chat.LayerLandlock))
	}
	return by
}
