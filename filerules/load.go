package filerules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// maxRules bounds the rules of a file, maxPattern the bytes of a pattern.
const (
	maxRules   = 1000
	maxPattern = 4096
)

// Load reads a file of rules in YAML or JSON5; name is what errors call it. It is strict: anything
// unknown is an error, and all errors are reported together, as [Faults]. [Policy.Warnings] reports
// rules that load but are probably mistakes.
func Load(name string, text []byte) (*Policy, error) {
	root, err := parseTree(name, text)
	if err != nil {
		var f Fault
		if !errors.As(err, &f) {
			f = Fault{Place: name, Why: err.Error()}
		}
		return nil, Faults{f}
	}
	l := loader{name: name, policy: &Policy{Mode: DenyWins, UseDefaults: true, agents: map[string]section{}, name: name, text: text}}
	l.root(root)
	if len(l.faults) > 0 {
		slices.SortStableFunc(l.faults, func(a, b Fault) int { return cmp.Compare(a.line, b.line) })
		return nil, l.faults
	}
	return l.policy, nil
}

// loader makes a policy from a tree and collects its faults.
type loader struct {
	name   string
	policy *Policy
	faults Faults
	rules  int
}

func (l *loader) place(line int) string {
	if l.name == builtIn {
		return builtIn
	}
	return fmt.Sprintf("%s:%d", l.name, line)
}

func (l *loader) fault(line int, key, format string, args ...any) {
	l.faults = append(l.faults, Fault{Place: l.place(line), Key: key, Why: fmt.Sprintf(format, args...), line: line})
}

// mapping calls the func of each key of n, and records unknown and duplicate keys as faults.
func (l *loader) mapping(n node, at string, known map[string]func(node, string), want string) {
	if n.kind != kindMapping {
		l.fault(n.line, at, "want a mapping with %s, got %s", want, n.is())
		return
	}
	first := map[string]int{}
	for _, e := range n.keys {
		key := join(at, e.name)
		read, ok := known[e.name]
		switch line, twice := first[e.name]; {
		case !ok:
			l.fault(e.line, at, "unknown key %s: want %s", chat.Quote(e.name), want)
		case twice:
			l.fault(e.line, key, "the key is there twice, first in line %d: want it once", line)
		default:
			first[e.name] = e.line
			read(e.value, key)
		}
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func (l *loader) root(n node) {
	l.mapping(n, "", map[string]func(node, string){
		"access": func(n node, at string) { l.policy.global = l.section(n, at, true) },
		"agents": l.agents,
		"guard":  l.guard,
		"routing": func(n node, at string) {
			l.mapping(n, at, map[string]func(node, string){"agents": l.agents}, "agents")
		},
	}, "access, agents, guard, routing")
}

// agents reads agents, or routing.agents; each agent may be in one of them.
func (l *loader) agents(n node, at string) {
	if n.kind != kindMapping {
		l.fault(n.line, at, "want a mapping of agent names, got %s", n.is())
		return
	}
	for _, e := range n.keys {
		key := join(at, e.name)
		if err := chat.CheckName("the agent name", e.name); err != nil {
			l.fault(e.line, at, "%s is no agent name: want 1 to %d of A-Z a-z 0-9 . _ - not beginning with . or -", chat.Quote(e.name), chat.MaxName)
			continue
		}
		if old, twice := l.policy.agents[e.name]; twice {
			l.fault(e.line, key, "the agent is there twice, first at %s: want one section for each agent", old.place)
			continue
		}
		own := section{}
		l.mapping(e.value, key, map[string]func(node, string){
			"access": func(n node, at string) { own = l.section(n, at, false) },
		}, "access")
		own.place = l.place(e.line)
		l.policy.agents[e.name] = own
	}
}

// section reads an access mapping. Only the global one may set mode, useDefaults and messages.
func (l *loader) section(n node, at string, global bool) section {
	var s section
	rules, deny, want := LayerAgentRules, LayerAgentDeny, "rules, deny"
	known := map[string]func(node, string){}
	if global {
		rules, deny, want = LayerGlobalRules, LayerGlobalDeny, "rules, deny, mode, useDefaults, messages"
		if l.name == builtIn {
			deny = LayerDefaults
		}
		known["mode"] = func(n node, at string) {
			l.word(n, at, func(w string) { l.policy.Mode = Mode(w) }, string(DenyWins), string(FirstMatch))
		}
		known["messages"] = func(n node, at string) {
			l.word(n, at, func(w string) { l.policy.Terse = w == "vague" }, "verbose", "vague")
		}
		known["useDefaults"] = func(n node, at string) {
			l.policy.UseDefaults = l.flag(n, at)
		}
	}
	known["rules"] = func(n node, at string) { s.rules = l.ruleList(n, at, rules) }
	known["deny"] = func(n node, at string) { s.deny = l.shorthand(n, at, deny) }
	l.mapping(n, at, known, want)
	return s
}

func (l *loader) word(n node, at string, set func(string), words ...string) {
	if n.kind != kindText || !slices.Contains(words, n.text) {
		l.fault(n.line, at, "want %s, got %s", strings.Join(words, " or "), n.is())
		return
	}
	set(n.text)
}

func (l *loader) ruleList(n node, at string, layer Layer) []Rule {
	if n.kind != kindList {
		l.fault(n.line, at, "want a list of rules, got %s", n.is())
		return nil
	}
	var rules []Rule
	for i, item := range n.items {
		if r, ok := l.rule(item, fmt.Sprintf("%s[%d]", at, i), layer); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// shorthand reads a list of patterns that are denied for every operation.
func (l *loader) shorthand(n node, at string, layer Layer) []Rule {
	if n.kind != kindList {
		l.fault(n.line, at, "want a list of patterns, got %s", n.is())
		return nil
	}
	var rules []Rule
	for i, item := range n.items {
		r := Rule{Effect: Deny, Ops: All, Layer: layer, Place: l.place(item.line)}
		if l.pattern(item, fmt.Sprintf("%s[%d]", at, i), &r) {
			rules = append(rules, r)
		}
	}
	return rules
}

func (l *loader) rule(n node, at string, layer Layer) (Rule, bool) {
	r := Rule{Ops: All, Layer: layer, Place: l.place(n.line)}
	before, effects := len(l.faults), 0
	effect := func(e Effect) func(node, string) {
		return func(n node, at string) {
			r.Effect = e
			effects++
			l.pattern(n, at, &r)
		}
	}
	l.mapping(n, at, map[string]func(node, string){
		"deny": effect(Deny), "allow": effect(Allow), "ops": func(n node, at string) { r.Ops = l.ops(n, at) },
	}, "deny or allow, ops")
	if n.kind == kindMapping && effects != 1 {
		l.fault(n.line, at, "want either deny or allow, got %s", [...]string{"neither", "", "both"}[effects])
	}
	return r, len(l.faults) == before
}

func (l *loader) ops(n node, at string) Op {
	if n.kind != kindList || len(n.items) == 0 {
		got := n.is()
		if n.kind == kindList {
			got = "an empty list"
		}
		l.fault(n.line, at, "want a list of %s, got %s", wantOps, got)
		return 0
	}
	var ops Op
	for i, item := range n.items {
		op, err := ParseOp(item.text)
		if item.kind != kindText || err != nil {
			l.fault(item.line, fmt.Sprintf("%s[%d]", at, i), "want %s, got %s", wantOps, item.is())
		}
		ops |= op
	}
	return ops
}

// pattern reads n into r.
func (l *loader) pattern(n node, at string, r *Rule) bool {
	if l.rules > maxRules {
		return false
	}
	if n.kind != kindText {
		l.fault(n.line, at, "want a pattern, got %s", n.is())
		return false
	}
	p, err := parsePattern(n.text)
	if err != nil {
		l.fault(n.line, at, "%v", err)
		return false
	}
	if l.rules += max(len(p.alts), 1); l.rules > maxRules {
		l.fault(n.line, at, "want at most %d rules in a file, each of a brace counted", maxRules)
		return false
	}
	r.Pattern, r.pattern = n.text, p
	return true
}
