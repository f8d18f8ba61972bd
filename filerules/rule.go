package filerules

import (
	"fmt"
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

// WantOps are the words of [ParseOp].
const WantOps = "read, write, edit, bash or *"

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
	return 0, chat.Invalid("cannot use op %s: want %s", chat.Quote(s), WantOps)
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

// Rule is one rule. Pattern is as it is written, and Globs are what it stands for: see [Globs].
type Rule struct {
	Effect  Effect   `json:"effect"`
	Pattern string   `json:"pattern"`
	Globs   []string `json:"globs"`
	Ops     Op       `json:"ops"`
	Layer   Layer    `json:"layer"`
	// Place is file:line, or [BuiltIn] for a default.
	Place string `json:"place"`

	pattern pattern
}

// parse makes the rule ready to be compiled. It is [Rule.Globs] that count: the pattern is what
// people read, but for an expression.
func (r *Rule) parse() (err error) {
	if r.Effect != Allow && r.Effect != Deny || r.Ops == 0 || r.Ops > All || len(r.Place) > maxPlace {
		return fmt.Errorf("want a rule with effect, operations and place, got %s", chat.Quote(r.String()))
	}
	r.pattern, err = parsePattern(r.Pattern, r.Globs)
	return err
}

// String is the rule in one line: effect, pattern, and the operations unless they are all.
func (r Rule) String() string {
	s := string(r.Effect) + " " + r.Pattern
	if r.Ops != All {
		s += " for " + r.Ops.String()
	}
	return s
}

// BuiltIn is the place of a default rule, and the name of a policy without a file.
const BuiltIn = "built in"

// defaults are on unless useDefaults is false.
var defaults = []string{"~/.ssh/**", "~/.gnupg/**", "**/.env", "**/secrets/**"}

// defaultRules are parsed once and never modified.
var defaultRules = sync.OnceValue(func() []Rule {
	var rules []Rule
	for _, text := range defaults {
		r := Rule{
			Effect: Deny, Pattern: text, Globs: []string{text}, Ops: All, Layer: LayerDefaults,
			Place: BuiltIn,
		}
		if err := r.parse(); err != nil {
			panic(err) // a constant of this file, TestDefaults
		}
		rules = append(rules, r)
	}
	return rules
})
