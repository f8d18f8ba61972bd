package provision

import (
	"context"
	"maps"

	"github.com/chatd/chatd/provision/homedir"
	"github.com/chatd/chatd/state"
)

// checkYounger refuses a database that is younger than the host; see [state.CheckGiven].
func (m *Manager) checkYounger(context.Context) error { return m.younger(m.store.WasGiven) }

func (m *Manager) younger(given func(uint32) bool) error {
	owners, err := homedir.Owners(m.paths.trees()...)
	if err != nil {
		return err
	}
	records, err := m.userdb.Recorded()
	if err != nil {
		return err
	}
	maps.Copy(owners, records)
	return state.CheckGiven(m.opt.State, given, m.opt.UIDs, owners)
}

// peekYounger is checkYounger for doctor, where no daemon holds the state. A state that is held
// or cannot be read is no finding of this kind.
func peekYounger(opt Options) error {
	given, err := state.Peek(opt.State)
	if err != nil {
		return nil
	}
	return newManager(opt).younger(given)
}
