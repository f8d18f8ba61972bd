package filerules

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// nobody stands for an agent without a section: no agent can have this name.
const nobody = "*"

// FindWarnings looks for rules that load but are probably mistakes: a rule that a command can
// bypass, one without effect, and a directory that reads as an expression. It tries each rule with
// an example.
func (p *Policy) FindWarnings() (all []string) {
	all = p.warnOf(nobody, p.Global)
	for _, name := range p.Agents() {
		all = append(all, p.warnOf(name, p.ByAgent[name])...)
	}
	return all
}

func (p *Policy) warnOf(agent string, s Section) (all []string) {
	rs, err := p.For(Scope{Agent: agent, Home: "/home/user"})
	if err != nil {
		return nil // a constant of this file
	}
	for _, r := range slices.Concat(s.Rules, s.Deny) {
		warn := func(format string, args ...any) {
			all = append(all, r.Place+": "+r.String()+": "+fmt.Sprintf(format, args...))
		}
		if command := getsThrough(r, rs); command != "" {
			warn("ops has no bash, so that this command gets through: %s", command)
		}
		if needsToBeThere(r, rs) {
			warn("the directory around it is closed: what is there when a session starts is open, and what comes from outside into a directory that was there; the chat cannot make it")
		}
		if p.Mode == DenyWins && r.Effect == Allow && r.Layer == LayerGlobalRules {
			warn("a global allow has no force in mode %s: want it in an agent's section, or mode %s",
				DenyWins, FirstMatch)
		}
		if inner := strings.Trim(r.Pattern, "/"); r.pattern.regex != nil && regexp.QuoteMeta(inner) == inner {
			warn("what is between slashes is a regular expression: for a directory, want /%s", inner)
		}
	}
	return all
}

// getsThrough is a command that reads a path which the rule denies to read; empty if none does, or
// if the rule denies bash. The kernel makes paths that may not be written or edited read-only.
func getsThrough(r Rule, rs *Ruleset) string {
	if r.Effect != Deny || r.Ops&Bash != 0 || r.Ops&Read == 0 {
		return ""
	}
	const program = "cat "
	example := r.pattern.example()
	if example == "" {
		return program + "of a path that matches"
	}
	if v, err := rs.Verdict(example, Bash); err != nil || v.Denied() {
		return ""
	}
	return program + example
}

// needsToBeThere reports whether an allow opens a path in a closed directory, in which the chat
// cannot create it.
func needsToBeThere(r Rule, rs *Ruleset) bool {
	example := r.pattern.example()
	if r.Effect != Allow || example == "" {
		return false
	}
	p := Fold(rs.scope.Home, rs.scope.Cwd, example)
	return rs.ClassOf(path.Dir(p)).Class == Closed && rs.ClassOf(p).Class != Closed
}

// example is a path that the pattern matches; empty for an expression.
func (p pattern) example() string {
	if p.regex != nil {
		return ""
	}
	alt := p.alts[0]
	names := []string{map[anchor]string{anchorRoot: "", anchorHome: "~", anchorCwd: ".",
		anchorName: "."}[alt.anchor]}
	if alt.segs[0].deep {
		names[0] = "."
	}
	for i, seg := range alt.segs {
		switch {
		case !seg.wild:
			names = append(names, seg.literal)
		case seg.deep && i == len(alt.segs)-1 && i > 0 && alt.segs[i-1].wild:
			names = append(names, "x")
		case !seg.deep:
			names = append(names, seg.example())
		}
	}
	return strings.Join(names, "/")
}

// example is a name that the segment matches.
func (s segment) example() string {
	var b strings.Builder
	for _, t := range globTokens(s.glob) {
		switch {
		case t == "*" || t == "?":
			b.WriteByte('x')
		case strings.HasPrefix(t, `[^`):
			b.WriteByte('x')
		case t[0] == '[':
			b.WriteString(UnescapeGlob(t[1 : len(t)-1])[:1])
		default:
			b.WriteString(UnescapeGlob(t))
		}
	}
	return b.String()
}
