package provision

import (
	"container/list"
	"slices"
	"sync"

	"github.com/chatd/chatd/filerules"
)

// maxCompiled bounds the cache of compiled rules, in bytes: enough for a hundred chats with
// 1,000 rules each, or for thousands with a dozen.
const maxCompiled = 64 << 20

// ruleBook is the file rules in force, by profile, and a cache of the rules compiled from them
// for chats. New rules come with a new book: compiled rules never outlive their source, even if
// a reload happens while they are compiled.
type ruleBook struct {
	policies map[string]*filerules.Policy
	max      int // bytes

	mu   sync.Mutex
	kept map[whose]*list.Element
	used list.List // of *chatRules, the last used first
	size int       // of all in used, in bytes
}

// whose is everything that compiled rules depend on. The working directory is the home; the
// targets of links come with each check.
type whose struct {
	policy      *filerules.Policy
	agent, home string
}

// chatRules are the compiled rules of a chat. They are shared and never changed.
type chatRules struct {
	*filerules.Ruleset
	// links returns the names whose links the rules need; none if they deny nothing.
	links func() ([]string, error)
	// closed returns closedWhole's result, computed once.
	closed func() closedPaths

	whose whose
	size  int // bytes
}

func newRuleBook(policies map[string]*filerules.Policy) *ruleBook {
	return &ruleBook{policies: policies, max: maxCompiled, kept: map[whose]*list.Element{}}
}

func (b *ruleBook) policy(profile string) *filerules.Policy {
	if p := b.policies[profile]; p != nil {
		return p
	}
	return builtIn()
}

// rules returns the compiled rules of a chat. Two simultaneous calls may both compile.
func (b *ruleBook) rules(w whose) (*chatRules, error) {
	if r := b.find(w); r != nil {
		return r, nil
	}
	r, err := compileRules(w)
	if err == nil {
		b.keep(r)
	}
	return r, err
}

func (b *ruleBook) find(w whose) *chatRules {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.kept[w]
	if e == nil {
		return nil
	}
	b.used.MoveToFront(e)
	return e.Value.(*chatRules)
}

// keep caches r, and drops the least recently used entries until all fit. It does not cache
// rules that alone exceed the bound.
func (b *ruleBook) keep(r *chatRules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.size > b.max || b.kept[r.whose] != nil {
		return
	}
	for b.size+r.size > b.max {
		b.forget(b.used.Back())
	}
	b.kept[r.whose] = b.used.PushFront(r)
	b.size += r.size
}

func (b *ruleBook) forget(e *list.Element) {
	old := b.used.Remove(e).(*chatRules)
	delete(b.kept, old.whose)
	b.size -= old.size
}

// keptSize is about how many bytes the book holds for a chat besides its rules.
const keptSize = 512

func compileRules(w whose) (*chatRules, error) {
	rs, err := w.policy.For(filerules.Scope{Agent: w.agent, Home: w.home})
	if err != nil {
		return nil, err
	}
	r := &chatRules{Ruleset: rs, links: sync.OnceValues(func() ([]string, error) { return linksOf(rs) }), whose: w}
	r.closed = sync.OnceValue(func() closedPaths { return closedWhole(rs) })
	r.size = rs.Size() + keptSize
	for _, c := range rs.Rules() {
		if denies(c) {
			r.size += linksSize(c)
		}
	}
	return r, nil
}

// linksSize is the size of the result of links for one rule, in bytes.
func linksSize(c filerules.Compiled) (n int) {
	const header = 16
	for _, m := range c.Matchers {
		n += header + len(m.Prefix)
	}
	return n
}

// linksOf compiles the rules again with a Resolve that follows no link and records the
// names.
func linksOf(rs *filerules.Ruleset) ([]string, error) {
	if !slices.ContainsFunc(rs.Rules(), denies) {
		return nil, nil
	}
	var names nameList
	scope := rs.Scope()
	scope.Resolve = names.add
	_, err := rs.Policy().For(scope)
	return slices.Clip(names.all), err
}

// denies reports whether links matter for the rule's directories.
func denies(c filerules.Compiled) bool { return c.Effect == filerules.Deny && !c.Inert }
