package filerules

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Policy is one file of rules, compiled: every pattern is a list of globs, and every line has its
// place. Its JSON is the form in which rules go from one process to another ([Policy.Compiled]).
// Package rulefile makes one from a file.
type Policy struct {
	// Name is what the file is called, and Sum the SHA-256 of its text in hex; without a file, of
	// the policy.
	Name string `json:"name"`
	Sum  string `json:"sum"`
	Mode Mode   `json:"mode"`
	// UseDefaults adds the default rules.
	UseDefaults bool `json:"use_defaults"`
	// Terse makes [Policy.Message] leave out details.
	Terse bool `json:"terse"`
	// Guard is the guard section, with its places; nil if the file has none.
	Guard       *chat.Guard      `json:"guard"`
	GuardPlaces chat.GuardPlaces `json:"guard_places"`
	// Global is the section access, and ByAgent has those of agents.
	Global  Section            `json:"access"`
	ByAgent map[string]Section `json:"agents"`
	// Warnings are what is probably a mistake in the file.
	Warnings []string `json:"warnings"`

	compiled func() []byte
}

// form is a Policy for encoding/json, which would keep all methods of a Policy in each program.
type form Policy

// Section is the rules of one access mapping.
type Section struct {
	Rules []Rule `json:"rules"`
	Deny  []Rule `json:"deny"`
	// Place is the file:line of an agent's.
	Place string `json:"place"`
}

// Bounds of a compiled policy, in bytes: of its JSON, and of one place in it.
const (
	MaxCompiled = 4 << 20
	maxPlace    = 8192
)

// ReadCompiled reads a compiled policy, and trusts nothing of it: an unknown key is an error, and so is
// every rule that package rulefile would not have written.
func ReadCompiled(text []byte) (*Policy, error) {
	var p form
	if len(text) > MaxCompiled {
		return nil, chat.Invalid("cannot read compiled rules of %d bytes: want at most %d", len(text),
			MaxCompiled)
	}
	if err := chat.Strict(text, &p); err != nil {
		return nil, chat.Invalid("cannot read compiled rules: %w", err)
	}
	return New(Policy(p))
}

// New checks a policy, and makes it ready to be compiled for a scope. It takes over p's slices and
// guard.
func New(p Policy) (*Policy, error) {
	if err := p.check(); err != nil {
		return nil, chat.Invalid("cannot use the rules of %s: %w", chat.Quote(p.Name), err)
	}
	if p.Guard != nil {
		p.Guard.SetPlaces(p.GuardPlaces)
	}
	if p.Sum == "" {
		p.Sum = SumOf(p.text())
	}
	p.compiled = sync.OnceValue(p.text)
	return &p, nil
}

// SumOf is the SHA-256 of a text in hex.
func SumOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

func (p *Policy) text() []byte {
	b, err := json.Marshal((*form)(p))
	if err != nil {
		panic(err) // strings, numbers and expressions that were read from text
	}
	return b
}

// Compiled is the policy as [ReadCompiled] reads it. Callers must not modify it.
func (p *Policy) Compiled() []byte { return p.compiled() }

func (p *Policy) check() error {
	if p.Mode != DenyWins && p.Mode != FirstMatch {
		return fmt.Errorf("mode %s: want %s or %s", chat.Quote(string(p.Mode)), DenyWins, FirstMatch)
	}
	if len(p.Name) > maxPlace || len(p.Sum) > maxPlace {
		return fmt.Errorf("want a name and a sum of at most %d bytes", maxPlace)
	}
	if p.Guard != nil {
		if err := p.Guard.Check(); err != nil {
			return fmt.Errorf("guard: %w", err)
		}
	}
	count, err := parseAll(p.Global.Rules, LayerGlobalRules)
	n, derr := parseAll(p.Global.Deny, LayerGlobalDeny, LayerDefaults)
	err = cmp.Or(err, derr)
	for _, name := range p.Agents() {
		own := p.ByAgent[name]
		a, aerr := parseAll(own.Rules, LayerAgentRules)
		b, berr := parseAll(own.Deny, LayerAgentDeny)
		err = cmp.Or(err, chat.CheckName("the agent name", name), aerr, berr)
		count += a + b
	}
	if count += n; err == nil && count > MaxRules {
		err = fmt.Errorf("it has %d rules, each glob counted: want at most %d", count, MaxRules)
	}
	return err
}

// parseAll parses the rules of one list, and counts them as their file's bound does.
func parseAll(rules []Rule, layers ...Layer) (count int, err error) {
	for i := range rules {
		r := &rules[i]
		if !slices.Contains(layers, r.Layer) {
			return 0, fmt.Errorf("a rule of layer %s is where %s belongs",
				chat.Quote(string(r.Layer)), layers[0])
		}
		if err := r.parse(); err != nil {
			return 0, fmt.Errorf("%s: %w", r.Place, err)
		}
		count += max(len(r.Globs), 1)
	}
	return count, nil
}

// Agents are the names that have a section of their own, sorted.
func (p *Policy) Agents() []string { return slices.Sorted(maps.Keys(p.ByAgent)) }

// Rules are the rules that hold for an agent, in the order in which [FirstMatch]
// walks them. An agent without a section has the global ones; empty is [chat.DefaultAgent].
func (p *Policy) Rules(agent string) []Rule {
	own := p.ByAgent[cmp.Or(agent, chat.DefaultAgent)]
	all := slices.Concat(own.Rules, own.Deny, p.Global.Rules, p.Global.Deny)
	if p.UseDefaults {
		all = append(all, defaultRules()...)
	}
	return all
}

// Summary is the source of the rules in one line: their file, or the defaults with what they deny.
func (p *Policy) Summary() string {
	switch {
	case p.Name != BuiltIn:
		return p.Name
	case len(p.Global.Deny) == 0:
		return "none"
	}
	s := "built-in defaults: deny"
	for _, r := range p.Global.Deny {
		s += " " + r.Pattern
	}
	return s
}

// Message is the text that a chat gets about a denied path.
func (p *Policy) Message(path string) string {
	if p.Terse {
		return "Access denied by policy"
	}
	return "Access denied: " + path + " blocked by policy"
}
