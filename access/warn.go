package access

import (
	"fmt"
	"regexp"
	"strings"
)

// nobody is an agent that has no section: no agent can be called so.
const nobody = "*"

// warn notes what loads but is probably not meant: a rule that a command gets
// round, a rule without force, and a directory that is read as an expression.
func (p *Policy) warn() {
	p.warnOf(nobody, p.global)
	for _, name := range p.Agents() {
		p.warnOf(name, p.agents[name])
	}
}

func (p *Policy) warnOf(agent string, s section) {
	rs, err := p.For(Scope{Agent: agent, Home: "/home/user"})
	if err != nil {
		return // a constant of this file
	}
	for _, r := range append(s.rules[:len(s.rules):len(s.rules)], s.deny...) {
		note := func(format string, args ...any) {
			p.Warnings = append(p.Warnings, r.Place+": "+r.String()+": "+fmt.Sprintf(format, args...))
		}
		if command := r.getsThrough(rs); command != "" {
			note("ops has no bash, so that this command gets through: %s", command)
		}
		if p.Mode == DenyWins && r.Effect == Allow && r.Layer == LayerGlobalRules {
			note("a global allow has no force in mode %s: want it in an agent's section, or mode %s", DenyWins, FirstMatch)
		}
		if inner := strings.Trim(r.Pattern, "/"); r.pattern.regex != nil && regexp.QuoteMeta(inner) == inner {
			note("what is between slashes is a regular expression: for a directory, want /%s", inner)
		}
	}
}

// getsThrough is a command that does what the rule denies; empty if none does, or
// if the rule denies bash.
func (r Rule) getsThrough(rs *Ruleset) string {
	if r.Effect != Deny || r.Ops&Bash != 0 {
		return ""
	}
	program := "tee "
	if r.Ops&Read != 0 {
		program = "cat "
	}
	example := r.pattern.example()
	if example == "" {
		return program + "of a path that matches"
	}
	if v, err := rs.JudgeCommand(program + "'" + example + "'"); err != nil || v.Denied() {
		return ""
	}
	return program + example
}

// example is a path that the pattern is about; empty for an expression.
func (p pattern) example() string {
	if p.regex != nil {
		return ""
	}
	alt := p.alts[0]
	names := []string{map[anchor]string{anchorRoot: "", anchorHome: "~", anchorCwd: ".", anchorName: "."}[alt.anchor]}
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
		case strings.HasPrefix(t, `[!`):
			b.WriteByte('x')
		case t[0] == '[':
			b.WriteString(unescapeGlob(t[1 : len(t)-1])[:1])
		default:
			b.WriteString(unescapeGlob(t))
		}
	}
	return b.String()
}
