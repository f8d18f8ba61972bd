package provision

import (
	"maps"
	"sync"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
)

// builtInRules are those of a profile without a file of rules. The defaults of the
// language are off: in a home of its own, .env is the chat's own file.
const builtInRules = "access: {useDefaults: false}\n"

// builtIn are those rules, read once.
var builtIn = sync.OnceValue(func() *filerules.Policy {
	p, err := filerules.Load("built in", []byte(builtInRules))
	if err != nil {
		panic(err) // a constant of this file
	}
	return p
})

// SetAccess makes these the file rules of the profiles, by profile; one that is not
// there has none.
func (m *Manager) SetAccess(policies map[string]*filerules.Policy) {
	m.access.Store(newRuleBook(maps.Clone(policies)))
}

// policy is the file of rules of a chat's profile, or what is built in.
func (m *Manager) policy(rec state.Record) *filerules.Policy {
	return m.access.Load().policy(rec.Profile)
}

// rules are the file rules of a chat: of its profile, for its agent, with its home as
// the working directory, whatever directory the chat names.
func (m *Manager) rules(rec state.Record) (*chatRules, error) {
	book := m.access.Load()
	return book.rules(whose{policy: book.policy(rec.Profile), agent: rec.Agent, home: m.home(rec.ID)})
}
