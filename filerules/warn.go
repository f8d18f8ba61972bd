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

// Warnings report rules that load but are probably mistakes: a rule that a command can bypass, one
// for which the kernel refuses more than it says, one without effect, and a directory that reads as
// an expression. Load does not call it, because it tries each rule with an example.
func (p *Policy) Warnings() (all []string) {
	all = p.warnOf(nobody, p.global)
	for _, name := range p.Agents() {
		all = append(all, p.warnOf(name, p.agents[name])...)
	}
	return all
}

func (p *Policy) warnOf(agent string, s section) (all []string) {
	rs, err := p.For(Scope{Agent: agent, Home: "/home/user"})
	if err != nil {
		return nil // a constant of this file
	}
	inVain := rs.inVain()
	for _, r := range append(s.rules[:len(s.rules):len(s.rules)], s.deny...) {
		warn := func(format string, args ...any) {
			all = append(all, r.Place+": "+r.String()+": "+fmt.Sprintf(format, args...))
		}
		if command := r.getsThrough(rs); command != "" {
			warn("ops has no bash, so that this command gets through: %s", command)
		}
		if more := r.stopsToo(rs); more != 0 {
			warn("in a session the kernel stops %s too, by files and by commands: it does not tell them from %s", more, r.Ops)
		}
		if v, ok := inVain[r.key()]; ok {
			warn("the kernel refuses %s all the same, because of %s (%s): it knows no tool from a command, and keeps a path closed without an allow of bash, and read-only without one of write and edit", v.ops, v.by.Rule, v.by.Rule.Place)
		}
		if r.needsToBeThere(rs) {
			warn("the directory around it is closed: what is there when a session starts is open, and what comes from outside into a directory that was there; the chat cannot make it")
		}
		if p.Mode == DenyWins && r.Effect == Allow && r.Layer == LayerGlobalRules {
			warn("a global allow has no force in mode %s: want it in an agent's section, or mode %s", DenyWins, FirstMatch)
		}
		if inner := strings.Trim(r.Pattern, "/"); r.pattern.regex != nil && regexp.QuoteMeta(inner) == inner {
			warn("what is between slashes is a regular expression: for a directory, want /%s", inner)
		}
	}
	return all
}

// getsThrough is a command that reads a path which the rule denies to read; empty if none does, or
// if the rule denies bash. The kernel makes paths that may not be written or edited read-only.
func (r Rule) getsThrough(rs *Ruleset) string {
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

// stopsToo are operations that the rule does not deny, but the kernel refuses with those that it
// does. A deny of bash closes a path, one of write or edit makes it read-only. Operations that
// other rules deny, or that an allow exempts, are not among them.
func (r Rule) stopsToo(rs *Ruleset) (more Op) {
	if r.Effect != Deny {
		return 0
	}
	kept, with := r.Ops&(Write|Edit), Write|Edit
	if r.Ops&Bash != 0 {
		kept, with = Bash, Read|Write|Edit
	}
	if kept == 0 {
		return 0
	}
	example := r.pattern.example()
	denied := func(op Op) bool {
		v, err := rs.Check(example, op)
		return err == nil && v.Denied()
	}
	for _, op := range []Op{Read, Write, Edit} {
		if with&op != 0 && r.Ops&op == 0 && (example == "" || denied(kept) && !denied(op)) {
			more |= op
		}
	}
	return more
}

// key identifies a rule within its policy.
func (r Rule) key() string { return r.Place + " " + r.String() }

// vain is the operations that an allow permits and the kernel refuses, and the deny behind that.
type vain struct {
	ops Op
	by  Verdict
}

// inVain are the allows, by key, that the kernel cannot fully honour. A deny closes their paths, or
// makes them read-only, and they exempt too few operations. It tries an example of each rule.
func (rs *Ruleset) inVain() map[string]vain {
	found := map[string]vain{}
	if !slices.ContainsFunc(rs.rules, func(c CompiledRule) bool { return c.Effect == Allow && !c.Inert }) {
		return found
	}
	for _, c := range rs.rules {
		example := c.pattern.example()
		if example == "" {
			continue
		}
		for _, op := range []Op{Read, Write, Edit, Bash} {
			said, err := rs.Check(example, op)
			if err != nil || said.Rule == nil || said.Rule.Effect != Allow {
				continue
			}
			if held, err := rs.Verdict(example, op); err == nil && held.Denied() && held.ByKernel {
				v := found[said.Rule.key()]
				found[said.Rule.key()] = vain{v.ops | op, held}
			}
		}
	}
	return found
}

// needsToBeThere reports whether an allow opens a path in a closed directory, in which the chat
// cannot create it.
func (r Rule) needsToBeThere(rs *Ruleset) bool {
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
			b.WriteString(UnescapeGlob(t[1 : len(t)-1])[:1])
		default:
			b.WriteString(UnescapeGlob(t))
		}
	}
	return b.String()
}
