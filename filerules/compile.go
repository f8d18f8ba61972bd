package filerules

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Scope is the agent and the directories for which a policy is compiled.
type Scope struct {
	// Agent selects the agent's section; empty means [chat.DefaultAgent].
	Agent string
	// Home is what ~ stands for.
	Home string
	// Cwd is the base of relative patterns and paths; empty means Home.
	Cwd string
	// Resolve resolves symbolic links, as [Physical] does. Its argument is not folded. With nil
	// only the folded name is checked.
	Resolve func(path string) string
	// Before returns earlier results of Resolve for the directory of a deny: the deny is about
	// paths there too. Nil means none.
	Before func(dir string) []string
}

// Kind is the type of a matcher, for its enforcers.
type Kind string

const (
	// KindSubtree is a path and everything under it.
	KindSubtree Kind = "subtree"
	// KindGlob is a glob of the whole path.
	KindGlob Kind = "glob"
	// KindRegex is a regular expression searched in the path.
	KindRegex Kind = "regex"
)

// Matcher matches the absolute, folded paths that a rule is about. A rule has one for each
// alternative of its braces, and for each name of its home.
type Matcher struct {
	Kind Kind
	// Path is the root of a KindSubtree.
	Path string
	// Glob is the glob of a KindGlob, from the first slash on: its segments are of [path.Match], or **.
	Glob string
	// Prefix is the longest directory that contains all matches: the Path of a KindSubtree, / for a
	// KindRegex.
	Prefix string
	// Regex is the expression of a KindRegex.
	Regex *regexp.Regexp

	segs []segment
	// need is a text that is in every match of Glob.
	need string
}

// Match reports whether the matcher is about the absolute, folded path p.
func (m *Matcher) Match(p string) bool {
	switch m.Kind {
	case KindSubtree:
		return chat.Within(p, m.Path)
	case KindRegex:
		return m.Regex.MatchString(p)
	}
	return strings.Contains(p, m.need) && matchPath(m.segs, p)
}

// CompiledRule is a rule with its matchers.
type CompiledRule struct {
	Rule
	Matchers []Matcher
	// Inert means that the rule has no effect in this mode: a global allow under [DenyWins].
	Inert bool

	rank int
}

// Match reports whether the rule is about the absolute, folded path p.
func (c *CompiledRule) Match(p string) bool {
	for i := range c.Matchers {
		if c.Matchers[i].Match(p) {
			return true
		}
	}
	return false
}

// Ruleset is a policy for one agent, home and working directory. It is safe for
// concurrent use.
type Ruleset struct {
	policy *Policy
	scope  Scope
	rules  []CompiledRule
	// holds is whether a deny has an operation of Kernel; writes, one of write or edit.
	holds, writes bool
	// matchers is the number of all matchers; bytes, of their patterns.
	matchers, bytes int
}

// Kernel are the operations that the kernel can enforce.
const Kernel = Bash | Write | Edit

// For compiles the rules that hold in a scope.
func (p *Policy) For(s Scope) (*Ruleset, error) {
	s.Agent = cmp.Or(s.Agent, chat.DefaultAgent)
	if err := checkDir("home", s.Home); err != nil {
		return nil, err
	}
	s.Cwd = cmp.Or(s.Cwd, s.Home)
	if err := checkDir("cwd", s.Cwd); err != nil {
		return nil, err
	}
	rs := &Ruleset{policy: p, scope: s}
	for i, r := range p.Rules(s.Agent) {
		c := CompiledRule{Rule: r, rank: i, Inert: p.Mode == DenyWins && r.Effect == Allow &&
			r.Layer == LayerGlobalRules}
		c.Matchers = r.pattern.matchers(s, r.Effect)
		if p.Mode == DenyWins {
			c.rank += p.force(r) * MaxRules
		}
		rs.rules = append(rs.rules, c)
		rs.matchers += len(c.Matchers)
		for _, m := range c.Matchers {
			rs.bytes += len(m.Path) + len(m.Glob)
		}
		if c.Effect == Deny {
			rs.holds = rs.holds || c.Ops&Kernel != 0
			rs.writes = rs.writes || c.Ops&(Write|Edit) != 0
		}
	}
	return rs, nil
}

func checkDir(what, dir string) error {
	if !path.IsAbs(dir) || strings.IndexByte(dir, 0) >= 0 || len(dir) > MaxPath {
		return chat.Invalid("cannot use %s %s: want an absolute path", what, chat.Quote(dir))
	}
	return nil
}

// force is the place of a rule's kind in the order of [DenyWins].
func (p *Policy) force(r Rule) int {
	agent := r.Layer == LayerAgentRules || r.Layer == LayerAgentDeny
	switch {
	case agent && r.Effect == Allow:
		return 0
	case agent:
		return 1
	}
	return 2
}

// Rules are all rules in the order of [FirstMatch], with their matchers. Callers must not modify
// them.
func (rs *Ruleset) Rules() []CompiledRule { return rs.rules }

// Policy is the policy from which the ruleset was compiled.
func (rs *Ruleset) Policy() *Policy { return rs.policy }

// Scope is the scope for which the ruleset was compiled.
func (rs *Ruleset) Scope() Scope { return rs.scope }

// matchers makes a pattern absolute. Patterns below the home or the working directory also match
// below the names that these resolve to; so does a deny below any other linked directory. An allow
// does not: a chat could make such a link and lead the allow anywhere.
func (p pattern) matchers(s Scope, e Effect) []Matcher {
	if p.regex != nil {
		return []Matcher{{Kind: KindRegex, Regex: p.regex, Prefix: "/"}}
	}
	var all []Matcher
	add := func(m Matcher) {
		same := func(o Matcher) bool { return o.Kind == m.Kind && o.Path == m.Path && o.Glob == m.Glob }
		if !slices.ContainsFunc(all, same) {
			all = append(all, m)
		}
	}
	for _, alt := range p.alts {
		base := map[anchor]string{anchorRoot: "/", anchorHome: s.Home, anchorCwd: s.Cwd,
			anchorName: "/"}[alt.anchor]
		m := alt.matcher(base)
		add(m)
		if s.Resolve == nil {
			continue
		}
		if real := s.Resolve(base); real != base {
			add(alt.matcher(real))
		}
		if e == Deny && m.Prefix != "/" {
			for _, real := range s.leads(m.Prefix) {
				add(newMatcher(slices.Concat(literals(real), m.segs[len(literals(m.Prefix)):])))
			}
		}
	}
	return all
}

// leads are the names to which links lead, or led, from the directory of a deny.
func (s Scope) leads(dir string) (names []string) {
	if real := s.Resolve(dir); real != dir {
		names = append(names, real)
	}
	if s.Before != nil {
		names = append(names, s.Before(dir)...)
	}
	return names
}

func literals(dir string) []segment {
	var segs []segment
	for name := range strings.SplitSeq(path.Clean(dir), "/") {
		if name != "" {
			segs = append(segs, literalSegment(name))
		}
	}
	return segs
}

// matcher makes the alternative's matcher below base.
func (a alternative) matcher(base string) Matcher {
	segs := literals(base)
	if a.anchor == anchorName {
		segs = []segment{{glob: "**", wild: true, deep: true}}
	}
	for _, seg := range a.segs {
		if seg.literal == ".." && len(segs) == 0 {
			continue
		}
		segs = push(segs, seg)
	}
	return newMatcher(segs)
}

func newMatcher(segs []segment) Matcher {
	m := Matcher{Kind: KindGlob, segs: segs}
	var glob, prefix strings.Builder
	literal := 0
	for i, seg := range segs {
		glob.WriteString("/" + seg.glob)
		m.need = cmp.Or(seg.literal, seg.glob[strings.LastIndexAny(seg.glob, `*?]\`)+1:], m.need)
		if literal == i && !seg.wild {
			prefix.WriteString("/" + seg.literal)
			literal++
		}
	}
	m.Prefix = max(prefix.String(), "/")
	if literal == len(segs)-1 && segs[literal].deep {
		m.Kind, m.Path = KindSubtree, m.Prefix
		return m
	}
	m.Glob = glob.String()
	return m
}
