package provision

import (
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// mostClosed bounds the denied paths in the home, and those outside, that bubblewrap masks and
// around which Landlock's grants are split.
const mostClosed = 64

// closedPaths are the paths that rules close as a whole: those of a pattern without wildcards,
// which hold no exception. Landlock grants nothing at those outside the home, and bubblewrap
// masks those that exist when a session begins.
type closedPaths struct{ outside, home []string }

func closedWhole(rs *filerules.Ruleset) (all closedPaths) {
	home := rs.Scope().Home
	for _, c := range rs.Rules() {
		if !denies(c) || c.Ops&filerules.Bash == 0 {
			continue
		}
		for _, m := range c.Matchers {
			list := &all.outside
			if chat.Within(m.Path, home) {
				list = &all.home
			}
			if m.Kind != filerules.KindSubtree || chat.Within(home, m.Path) || len(*list) == mostClosed || slices.Contains(*list, m.Path) {
				continue
			}
			if rs.ClassOf(m.Path).Class == filerules.Closed && !mayOpenIn(rs, m.Path) {
				*list = append(*list, m.Path)
			}
		}
	}
	return all
}

// mayOpenIn reports whether some rule may allow a path in dir.
func mayOpenIn(rs *filerules.Ruleset, dir string) bool {
	return slices.ContainsFunc(rs.Rules(), func(c filerules.Compiled) bool {
		return c.Effect == filerules.Allow && !c.Inert && slices.ContainsFunc(c.Matchers, func(m filerules.Matcher) bool {
			return chat.Within(m.Prefix, dir) || chat.Within(dir, m.Prefix)
		})
	})
}

// closedTo returns the closed paths of a chat. If its rules do not compile, its session does not
// start, and the enforcer reports the reason.
func (m *Manager) closedTo(rec state.Record) closedPaths {
	rules, err := m.rules(rec)
	if err != nil {
		return closedPaths{}
	}
	return rules.closed()
}

// keptBy names the mechanisms that enforce a denial in the chat's sessions: the enforcer, for
// every path of which the kernel can tell; of paths closed as a whole bubblewrap, for those that
// existed when the session began, and Landlock, for those outside the home.
func (m *Manager) keptBy(rec state.Record, v filerules.Verdict) (by []string) {
	rules, err := m.rules(rec)
	if err != nil || !v.Denied() || v.Name == "" || !filerules.Enforced(v.Name) {
		return nil
	}
	switch h := rules.ClassOf(v.Name); {
	case h.Class == filerules.Closed, h.Class == filerules.ReadOnly && v.Rule != nil && v.Rule.Ops&filerules.Read == 0:
		by = append(by, "chatd-enforce")
	}
	masked, leftOut := m.closedBy(rec)
	around := func(d string) bool { return chat.Within(v.Name, d) }
	if slices.ContainsFunc(masked, around) {
		by = append(by, "bubblewrap")
	}
	if slices.ContainsFunc(leftOut, around) {
		by = append(by, string(chat.LayerLandlock))
	}
	return by
}

// closedBy returns the denied paths that bubblewrap masks in the chat's session, and those to
// which Landlock grants nothing. For a sleeping chat they are those of its next session, found by
// one look at the host.
func (m *Manager) closedBy(rec state.Record) (masked, leftOut []string) {
	if s := m.session(rec.ID); s != nil {
		return s.maskedPaths(), m.leftOutIn(m.sessionView(rec, s))
	}
	if closed := m.closedTo(rec); len(closed.home)+len(closed.outside) == 0 {
		return nil, nil
	}
	v, _, err := m.exposedView(rec)
	if err != nil {
		v.Masked = nil // a wake reports the error
	}
	return targets(v.Masked), m.leftOutIn(v)
}

// leftOutIn returns the denied paths to which Landlock grants nothing in a session of view v.
func (m *Manager) leftOutIn(v shims.View) []string {
	if m.without(chat.LayerLandlock) || len(v.Denied) == 0 {
		return nil
	}
	return v.LeftOut()
}

// rulesInLandlock adds to the layer landlock the number of denied paths that it enforces.
func (m *Manager) rulesInLandlock(l chat.Layer, rec state.Record, s *session) chat.Layer {
	if n := len(m.leftOutIn(m.sessionView(rec, s))); n > 0 {
		l.Probe += fmt.Sprintf("; file rules: nothing is granted at %d denied paths outside the home", n)
	}
	return l
}
