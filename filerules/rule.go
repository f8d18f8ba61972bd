package filerules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Op is a set of operations.
type Op uint8

// The operations of a rule.
const (
	Read Op = 1 << iota
	Write
	Edit
	Bash
	// All is the meaning of "*", and of a rule without ops.
	All = Read | Write | Edit | Bash
)

var opNames = []struct {
	op   Op
	name string
}{{Read, "read"}, {Write, "write"}, {Edit, "edit"}, {Bash, "bash"}}

const wantOps = "read, write, edit, bash or *"

// ParseOp reads one operation, or * for all of them.
func ParseOp(s string) (Op, error) {
	for _, n := range opNames {
		if n.name == s {
			return n.op, nil
		}
	}
	if s == "*" {
		return All, nil
	}
	return 0, fmt.Errorf("cannot use op %s: want %s: %w", chat.Quote(s), wantOps, chat.ErrInvalid)
}

// Names are the operations of the set, each by its name.
func (o Op) Names() []string {
	var names []string
	for _, n := range opNames {
		if o&n.op != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// String is the names of the set, or * for all of them.
func (o Op) String() string {
	if o == All {
		return "*"
	}
	return strings.Join(o.Names(), ", ")
}

// Effect is the decision of a rule and of a verdict.
type Effect string

// The two effects.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Mode is how conflicts between rules are resolved.
type Mode string

const (
	// DenyWins: an allow of the agent, else a deny of the agent, else a global deny decides; else
	// it is allowed. A global allow has no effect.
	DenyWins Mode = "deny-wins"
	// FirstMatch: the first rule that matches decides, in the order of [Layer].
	FirstMatch Mode = "first-match"
)

// Layer is the part of a policy that contains a rule.
type Layer string

// The layers, in the order of [FirstMatch].
const (
	LayerAgentRules  Layer = "agent rules"
	LayerAgentDeny   Layer = "agent deny"
	LayerGlobalRules Layer = "global rules"
	LayerGlobalDeny  Layer = "global deny"
	LayerDefaults    Layer = "defaults"
	// LayerNone is the layer of a verdict without a rule.
	LayerNone Layer = "none"
)

// Rule is one rule as it is written.
type Rule struct {
	Effect  Effect
	Pattern string
	Ops     Op
	Layer   Layer
	// Place is file:line, or "built in" for a default.
	Place string

	pattern pattern
}

// String is the rule in one line: effect, pattern, and the operations unless they are all.
func (r Rule) String() string {
	s := string(r.Effect) + " " + r.Pattern
	if r.Ops != All {
		s += " for " + r.Ops.String()
	}
	return s
}

// builtIn is the place of a default rule.
const builtIn = "built in"

// defaults are on unless useDefaults is false.
var defaults = []string{"~/.ssh/**", "~/.gnupg/**", "**/.env", "**/secrets/**"}

// defaultRules are parsed once and never modified.
var defaultRules = sync.OnceValue(func() []Rule {
	var rules []Rule
	for _, text := range defaults {
		p, err := parsePattern(text)
		if err != nil {
			panic(err) // a constant of this file, TestDefaults
		}
		rules = append(rules, Rule{Effect: Deny, Pattern: text, Ops: All, Layer: LayerDefaults, Place: builtIn, pattern: p})
	}
	return rules
})

// Summary is the source of the rules in one line: their file, or the defaults with what they deny.
func (p *Policy) Summary() string {
	switch {
	case p.name != builtIn:
		return p.name
	case len(p.global.deny) == 0:
		return "none"
	}
	s := "built-in defaults: deny"
	for _, r := range p.global.deny {
		s += " " + r.Pattern
	}
	return s
}

// section is one access mapping: the global one, or an agent's.
type section struct {
	rules, deny []Rule
	place       string
}

// Policy is one file of rules.
type Policy struct {
	Mode        Mode
	UseDefaults bool
	// Terse makes [Policy.Message] leave out details.
	Terse bool
	// Guard is the guard section; nil if the file has none.
	Guard *chat.Guard

	global section
	agents map[string]section
	name   string
	text   []byte
}

// Source is the file as it was passed to [Load]: its name and its text. An enforcer in another
// process loads it again.
func (p *Policy) Source() (name string, text []byte) { return p.name, p.text }

// Agents are the names that have a section of their own.
func (p *Policy) Agents() []string {
	var names []string
	for name := range p.agents {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Rules are the rules that hold for an agent, in the order in which [FirstMatch]
// walks them. An agent without a section has the global ones; empty is [chat.DefaultAgent].
func (p *Policy) Rules(agent string) []Rule {
	own := p.agents[cmp.Or(agent, chat.DefaultAgent)]
	all := slices.Concat(own.rules, own.deny, p.global.rules, p.global.deny)
	if p.UseDefaults {
		all = append(all, defaultRules()...)
	}
	return all
}

// Message is the text that a chat gets about a denied path.
func (p *Policy) Message(path string) string {
	if p.Terse {
		return "Access denied by policy"
	}
	return "Access denied: " + path + " blocked by policy"
}
