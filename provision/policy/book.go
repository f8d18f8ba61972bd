package policy

import (
	"maps"
	"slices"
	"sync"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
)

// maxCompiled bounds the cache of compiled rules. A set of 1,000 rules has about half a megabyte.
const maxCompiled = 128

// book is the file rules in force, by profile, and a cache of the rules compiled from them
// for chats. New rules come with a new book: compiled rules never outlive their source, even if
// a reload happens while they are compiled.
type book struct {
	policies map[string]*filerules.Policy

	mu   sync.Mutex
	kept map[ruleKey]*Rules
}

// ruleKey is everything that compiled rules depend on; the targets of links come with each check.
// The working directory is the home, whatever directory the chat names.
type ruleKey struct {
	policy      *filerules.Policy
	agent, home string
}

// Rules are the compiled rules of a chat. They are shared and never changed.
type Rules struct {
	*filerules.Ruleset
	// Closed returns the paths that the rules close as a whole, computed once.
	Closed func() []string
}

// newBook returns a book of all policies, by profile name. A profile that the map lacks has the
// built-in rules.
func newBook(all map[string]*filerules.Policy) *book {
	return &book{policies: maps.Clone(all), kept: map[ruleKey]*Rules{}}
}

// policy returns the file rules of a profile, or the built-in ones.
func (b *book) policy(profile string) *filerules.Policy {
	if p := b.policies[profile]; p != nil {
		return p
	}
	return filerules.None()
}

// needed reports whether the rules of an agent of a profile have a denial that the kernel enforces.
func (b *book) needed(profile, agent string) bool {
	return pathclass.Needed(b.policy(profile), agent)
}

// enforced returns the profiles with such a denial, for any agent, sorted.
func (b *book) enforced() []string {
	names := slices.Sorted(maps.Keys(b.policies))
	return slices.DeleteFunc(names, func(name string) bool {
		return !pathclass.NeededBy(b.policies[name])
	})
}

// rules returns the compiled rules of a chat. Two simultaneous calls may both compile.
func (b *book) rules(c Chat) (*Rules, error) {
	key := ruleKey{b.policy(c.Profile), c.Agent, c.Home}
	b.mu.Lock()
	r := b.kept[key]
	b.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := compile(key)
	if err == nil {
		b.keep(key, r)
	}
	return r, err
}

// keep caches r. A full cache begins anew.
func (b *book) keep(key ruleKey, r *Rules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.kept) == maxCompiled {
		clear(b.kept)
	}
	b.kept[key] = r
}

func compile(key ruleKey) (*Rules, error) {
	rs, err := key.policy.For(filerules.Scope{Agent: key.agent, Home: key.home})
	if err != nil {
		return nil, err
	}
	return &Rules{
		Ruleset: rs,
		Closed:  sync.OnceValue(func() []string { return closedWhole(rs) }),
	}, nil
}

// denies reports whether links matter for the rule's directories.
func denies(c filerules.CompiledRule) bool { return c.Effect == filerules.Deny && !c.Inert }
