package filerules

import (
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
)

// MaxPath bounds a checked path; the kernel accepts 4096 bytes.
const MaxPath = chat.MaxNamedPath

// Verdict is the answer to one question.
type Verdict struct {
	Effect Effect
	// Rule is the rule that decided; nil if none did.
	Rule *Rule
	// Layer is the rule's, or [LayerNone].
	Layer Layer
	// Name is the absolute path that was checked: the folded one, or the one it resolves to; for a
	// command, the denied path.
	Name string
	// ByKernel means that the rule is about another operation or name. The kernel closes its path,
	// or makes it read-only, for every program, and so refuses this operation too.
	ByKernel bool
	// Paths are the paths found in a command: absolute and folded, globs unchanged.
	Paths []string
}

// Denied reports whether the answer is no.
func (v Verdict) Denied() bool { return v.Effect == Deny }

// Explained converts the verdict to an answer.
func (v Verdict) Explained() chat.Explained {
	e := chat.Explained{Verdict: string(v.Effect), Layer: string(v.Layer), Name: v.Name,
		Paths: append([]string{}, v.Paths...), ByKernel: v.ByKernel}
	if v.Rule != nil {
		e.Rule, e.Place = v.Rule.String(), v.Rule.Place
	}
	return e
}

// Message is the text that a chat gets about a path that a rule denies, with ~ for the home where the
// rule has it.
func (rs *Ruleset) Message(r Rule, p string) string {
	if (r.Pattern == "~" || strings.HasPrefix(r.Pattern, "~/")) && chat.Within(p, rs.scope.Home) {
		p = "~" + p[len(rs.scope.Home):]
	}
	return rs.policy.Message(p)
}

// Fold makes a path absolute as it is checked: below cwd unless it begins with /, ~
// or ~/ at its head replaced by home, without ., .. and empty segments.
func Fold(home, cwd, p string) string { return path.Clean(Absolute(home, cwd, p)) }

// Absolute is [Fold] without folding, so that .. can be followed through links.
func Absolute(home, cwd, p string) string {
	switch {
	case p == "~":
		return home
	case strings.HasPrefix(p, "~/"):
		return home + p[1:]
	case strings.HasPrefix(p, "/"):
		return p
	}
	return cwd + "/" + p
}

// Check reports whether the rules allow an operation on a path.
func (rs *Ruleset) Check(p string, op Op) (Verdict, error) {
	switch {
	case p == "":
		return Verdict{}, chat.Invalid("cannot check an empty path")
	case len(p) > MaxPath:
		return Verdict{}, chat.Invalid("cannot check a path of %d bytes: want at most %d", len(p), MaxPath)
	case strings.IndexByte(p, 0) >= 0:
		return Verdict{}, chat.Invalid("cannot check path %s: it holds a NUL", chat.Quote(p))
	case op != Read && op != Write && op != Edit && op != Bash:
		return Verdict{}, chat.Invalid("cannot check op %q: want one of read, write, edit, bash", op)
	}
	return rs.check(rs.names(Absolute(rs.scope.Home, rs.scope.Cwd, p)), op), nil
}

// names are the folded name of an absolute path and, if links redirect it, what they lead to.
func (rs *Ruleset) names(raw string) []string {
	names := []string{path.Clean(raw)}
	if rs.scope.Resolve != nil {
		if real := rs.scope.Resolve(raw); real != names[0] {
			names = append(names, real)
		}
	}
	return names
}

// check checks the names of one path. A deny of any of them denies.
func (rs *Ruleset) check(names []string, op Op) (v Verdict) {
	for i, name := range names {
		w := rs.CheckName(name, op)
		if i == 0 || w.Denied() || v.Rule == nil && w.Rule != nil {
			v = w
		}
		if v.Denied() {
			break
		}
	}
	return v
}

// CheckName checks one absolute, folded name without resolving links, for callers that have
// resolved them, as the kernel's walls have. It validates neither name nor op.
func (rs *Ruleset) CheckName(name string, op Op) Verdict {
	return rs.winner(name, op, func(c *CompiledRule) bool { return c.Match(name) })
}

// winner is the verdict of the rule of the lowest rank that is about op on a name. It tries all
// rules: a file has at most [MaxRules].
func (rs *Ruleset) winner(name string, op Op, about func(*CompiledRule) bool) Verdict {
	var c *CompiledRule
	for i := range rs.rules {
		r := &rs.rules[i]
		if !r.Inert && r.Ops&op != 0 && (c == nil || r.rank < c.rank) && about(r) {
			c = r
		}
	}
	if c == nil {
		return Verdict{Effect: Allow, Layer: LayerNone, Name: name}
	}
	return Verdict{Effect: c.Effect, Rule: &c.Rule, Layer: c.Layer, Name: name}
}
