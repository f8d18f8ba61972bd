package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Load reads a file of rules in YAML or JSON5; name is what errors call it. It is strict: anything
// unknown is an error, and all errors are reported together, as [filerules.Faults]. Rules that load
// but are probably mistakes are the policy's Warnings.
func Load(name string, text []byte) (*filerules.Policy, error) {
	root, err := parseTree(name, text)
	if err != nil {
		var f filerules.Fault
		if !errors.As(err, &f) {
			f = filerules.Fault{Place: name, Why: err.Error()}
		}
		return nil, filerules.Faults{f}
	}
	l := loader{name: name, policy: filerules.Policy{
		Name: name, Sum: filerules.SumOf(text), Mode: filerules.DenyWins, UseDefaults: true,
		ByAgent: map[string]filerules.Section{},
	}}
	l.root(root)
	if len(l.faults) > 0 {
		slices.SortStableFunc(l.faults, func(a, b filerules.Fault) int { return cmp.Compare(a.Line, b.Line) })
		return nil, l.faults
	}
	p, err := filerules.New(l.policy)
	if err != nil {
		return nil, filerules.Faults{{Place: name, Why: err.Error()}}
	}
	p.Warnings = p.FindWarnings()
	if n := len(p.Compiled()); n > filerules.MaxCompiled {
		why := fmt.Sprintf("its rules have %d bytes with braces written out, want at most %d", n,
			filerules.MaxCompiled)
		return nil, filerules.Faults{{Place: name, Why: why}}
	}
	return p, nil
}

// loader makes a policy from a tree and collects its faults.
type loader struct {
	name   string
	policy filerules.Policy
	faults filerules.Faults
	rules  int
}

func (l *loader) place(line int) string {
	if l.name == filerules.BuiltIn {
		return filerules.BuiltIn
	}
	return fmt.Sprintf("%s:%d", l.name, line)
}

func (l *loader) fault(line int, key, format string, args ...any) {
	l.faults = append(l.faults,
		filerules.Fault{Place: l.place(line), Key: key, Why: fmt.Sprintf(format, args...), Line: line})
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
		"access": func(n node, at string) { l.policy.Global = l.section(n, at, true) },
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
			l.fault(e.line, at,
				"%s is no agent name: want 1 to %d of A-Z a-z 0-9 . _ - not beginning with . or -",
				chat.Quote(e.name), chat.MaxName)
			continue
		}
		if old, twice := l.policy.ByAgent[e.name]; twice {
			l.fault(e.line, key,
				"the agent is there twice, first at %s: want one section for each agent", old.Place)
			continue
		}
		own := filerules.Section{}
		l.mapping(e.value, key, map[string]func(node, string){
			"access": func(n node, at string) { own = l.section(n, at, false) },
		}, "access")
		own.Place = l.place(e.line)
		l.policy.ByAgent[e.name] = own
	}
}

// section reads an access mapping. Only the global one may set mode, useDefaults and messages.
func (l *loader) section(n node, at string, global bool) filerules.Section {
	var s filerules.Section
	rules, deny, want := filerules.LayerAgentRules, filerules.LayerAgentDeny, "rules, deny"
	known := map[string]func(node, string){}
	if global {
		rules, deny, want = filerules.LayerGlobalRules, filerules.LayerGlobalDeny, "rules, deny, mode, useDefaults, messages"
		if l.name == filerules.BuiltIn {
			deny = filerules.LayerDefaults
		}
		known["mode"] = func(n node, at string) {
			l.word(n, at, func(w string) {
				l.policy.Mode = filerules.Mode(w)
			}, string(filerules.DenyWins), string(filerules.FirstMatch))
		}
		known["messages"] = func(n node, at string) {
			l.word(n, at, func(w string) { l.policy.Terse = w == "vague" }, "verbose", "vague")
		}
		known["useDefaults"] = func(n node, at string) {
			l.policy.UseDefaults = l.flag(n, at)
		}
	}
	known["rules"] = func(n node, at string) {
		s.Rules = listOf(l, n, at, "rules", func(n node, at string) (filerules.Rule, bool) {
			return l.rule(n, at, rules)
		})
	}
	known["deny"] = func(n node, at string) { // of patterns that are denied for every operation
		s.Deny = listOf(l, n, at, "patterns", func(n node, at string) (filerules.Rule, bool) {
			r := filerules.Rule{Effect: filerules.Deny, Ops: filerules.All, Layer: deny, Place: l.place(n.line)}
			ok := l.pattern(n, at, &r)
			return r, ok
		})
	}
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

// listOf reads the items of a list of what; read is false for an item that is left out.
func listOf[T any](l *loader, n node, at, what string, read func(n node, at string) (T, bool)) (all []T) {
	if n.kind != kindList {
		l.fault(n.line, at, "want a list of %s, got %s", what, n.is())
	}
	for i, item := range n.items {
		if v, ok := read(item, fmt.Sprintf("%s[%d]", at, i)); ok {
			all = append(all, v)
		}
	}
	return all
}

func (l *loader) rule(n node, at string, layer filerules.Layer) (filerules.Rule, bool) {
	r := filerules.Rule{Ops: filerules.All, Layer: layer, Place: l.place(n.line)}
	before, effects := len(l.faults), 0
	effect := func(e filerules.Effect) func(node, string) {
		return func(n node, at string) {
			r.Effect = e
			effects++
			l.pattern(n, at, &r)
		}
	}
	l.mapping(n, at, map[string]func(node, string){
		"deny": effect(filerules.Deny), "allow": effect(filerules.Allow), "ops": func(n node, at string) {
			r.Ops = l.ops(n, at)
		},
	}, "deny or allow, ops")
	if n.kind == kindMapping && effects != 1 {
		l.fault(n.line, at, "want either deny or allow, got %s", [...]string{"neither", "", "both"}[effects])
	}
	return r, len(l.faults) == before
}

func (l *loader) ops(n node, at string) (ops filerules.Op) {
	if n.kind == kindList && len(n.items) == 0 {
		l.fault(n.line, at, "want a list of %s, got an empty list", filerules.WantOps)
	}
	for _, op := range listOf(l, n, at, filerules.WantOps, func(n node, at string) (filerules.Op, bool) {
		op, err := filerules.ParseOp(n.text)
		if n.kind != kindText || err != nil {
			l.fault(n.line, at, "want %s, got %s", filerules.WantOps, n.is())
		}
		return op, true
	}) {
		ops |= op
	}
	return ops
}

// pattern reads n into r.
func (l *loader) pattern(n node, at string, r *filerules.Rule) bool {
	if l.rules > filerules.MaxRules {
		return false
	}
	if n.kind != kindText {
		l.fault(n.line, at, "want a pattern, got %s", n.is())
		return false
	}
	globs, err := filerules.Globs(n.text)
	if err != nil {
		l.fault(n.line, at, "%v", err)
		return false
	}
	if l.rules += max(len(globs), 1); l.rules > filerules.MaxRules {
		l.fault(n.line, at, "want at most %d rules in a file, each of a brace counted", filerules.MaxRules)
		return false
	}
	r.Pattern, r.Globs = n.text, globs
	return true
}
