package provision

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/state"
)

// openings returns a sentence for each thing that the config leaves open and a reader might take
// for closed: a guard that refuses nothing, a PATH with every program, and limits that the host does
// not keep, and file rules that it keeps with less.
func (m *Manager) openings() []string {
	var open []string
	for _, name := range slices.Sorted(maps.Keys(m.opt.Profiles)) {
		p := m.profile(state.Record{Profile: name})
		if !p.Guard.On() {
			open = append(open, fmt.Sprintf("profile %s: the guard is off: no command is refused before it runs", name))
		}
		if slices.Contains(p.Commands, "*") {
			open = append(open, fmt.Sprintf(`profile %s: commands is "*": every program of the host is in the PATH of its chats`, name))
		}
		if m.groups == nil {
			continue // no backend was opened
		}
		for _, what := range m.groups.Unkept(p.Limits) {
			open = append(open, fmt.Sprintf("profile %s: %s", name, what))
		}
	}
	return append(open, m.policy.Unwatched(m.opt.Homes, m.opt.State)...)
}

// sayOpenings writes them to the log, once at each start and reload.
func (m *Manager) sayOpenings() {
	for _, what := range m.openings() {
		m.log.Warn("the config leaves something open", "what", what)
	}
}

// broken returns the reasons for which the config does not hold although every layer is in
// force: file rules of a chat without an enforcer.
func (m *Manager) broken(ctx context.Context) []string {
	all := []string{}
	for _, err := range []error{m.raiseEnforcer(ctx), m.store.Room()} {
		if err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}
