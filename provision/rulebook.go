package provision

import (
	"container/list"
	"slices"
	"sync"

	"github.com/chatd/chatd/filerules"
)

// maxCompiled bounds, in bytes, the compiled rules that are kept: those of a hundred chats
// with 1,000 rules each, of thousands with a dozen.
const maxCompiled = 64 << 20

// ruleBook is the file rules that hold, by profile, and what was compiled of them for
// chats. Whoever sets rules sets another book: nothing that is compiled outlives what it
// was compiled of, nor does who begins to compile before a reload leave it behind after.
type ruleBook struct {
	policies map[string]*filerules.Policy
	max      int // bytes

	mu   sync.Mutex
	kept map[whose]*list.Element
	used list.List // of *chatRules, the last used first
	size int       // of all in used
}

// whose is all that compiled rules hang on. The working directory is the home, and where
// links lead they are told when they judge.
type whose struct {
	policy      *filerules.Policy
	agent, home string
}

// chatRules are the compiled rules of a chat. They are shared: nobody changes them.
type chatRules struct {
	*filerules.Ruleset
	// links are the names whose links the rules want to know; none if they deny nothing.
	links func() ([]string, error)
	// closed is closedWhole, once.
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

// rules are the compiled rules of a chat. Two calls at once may both compile.
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

// keep remembers r, and forgets who asked longest ago until all fit. Rules that alone are
// too many are not kept.
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

// keptSize is about what the book has of each chat beside its rules.
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

// linksSize is what links holds for one rule, in bytes.
func linksSize(c filerules.Compiled) (n int) {
	const header = 16
	for _, m := range c.Matchers {
		n += header + len(m.Prefix)
	}
	return n
}

// linksOf has the rules compiled once more by somebody who follows no link and notes what
// is asked.
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

// denies reports a rule for whose directories links matter.
func denies(c filerules.Compiled) bool { return c.Effect == filerules.Deny && !c.Inert }
