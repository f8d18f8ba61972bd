package provision

import (
	"maps"
	"sync"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
)

// builtInRules are the rules of a profile without a file of rules. The language's defaults are
// off: in a chat's home, .env is the chat's own file.
const builtInRules = "access: {useDefaults: false}\n"

// builtIn returns builtInRules, parsed once.
var builtIn = sync.OnceValue(func() *filerules.Policy {
	p, err := filerules.Load("built in", []byte(builtInRules))
	if err != nil {
		panic(err) // a constant of this file
	}
	return p
})

// SetAccess sets the file rules of the profiles, by profile name. A profile that the map lacks
// gets the built-in rules.
func (m *Manager) SetAccess(policies map[string]*filerules.Policy) {
	m.access.Store(newRuleBook(maps.Clone(policies)))
}

// policy returns the file rules of a chat's profile, or the built-in ones.
func (m *Manager) policy(rec state.Record) *filerules.Policy {
	return m.access.Load().policy(rec.Profile)
}

// rules returns the compiled file rules of a chat: of its profile, for its agent. The working
// directory is its home, whatever directory the chat names.
func (m *Manager) rules(rec state.Record) (*chatRules, error) {
	book := m.access.Load()
	return book.rules(whose{policy: book.policy(rec.Profile), agent: rec.Agent, home: m.home(rec.ID)})
}
