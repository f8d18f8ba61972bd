package policy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// keySet has those keys of each profile that a reload replaces: those against which runs are checked,
// and those that hold for chats that live. It is replaced as a whole, so that no run is checked
// against a mixture of two configs.
type keySet map[string]chat.Profile

// keySetOf takes the keys out of profiles.
func keySetOf(profiles map[string]chat.Profile) (keySet, error) {
	all := keySet{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		if err := p.Guard.CheckPatterns(); err != nil {
			errs = append(errs, fmt.Errorf("cannot use the guard of profile %s: %w", name, err))
		}
		all[name] = chat.Profile{
			Guard: p.Guard, ToolsOff: p.ToolsOff, Agents: p.Agents, TimeoutMax: p.TimeoutMax,
			Limits: p.Limits, Env: p.Env, Egress: p.Egress, EgressMayAdd: p.EgressMayAdd,
			Network: p.EffectiveNetwork(),
		}
	}
	return all, errors.Join(errs...)
}

// newKeySet returns the keys of profiles after a reload, in place of those of old. Changes of other
// keys wait for a restart. A config without one of the profiles is refused: its chats would lose
// their guard.
func newKeySet(old, profiles map[string]chat.Profile) (keySet, error) {
	errs := []error{}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		p, ok := profiles[name]
		if !ok {
			errs = append(errs, chat.Invalid("cannot do without profile %s: the new config has none "+
				"of that name; restart chatd", name))
			continue
		}
		errs = append(errs, p.Validate())
	}
	all, err := keySetOf(profiles)
	return all, errors.Join(append(errs, err)...)
}

// in returns a profile with its keys, if they are known, in place of its own. The kind of network
// is fixed when chatd starts: another one waits for a restart, and so does the egress through it.
func (k keySet) in(p chat.Profile, name string) chat.Profile {
	if own, ok := k[name]; ok {
		p.Guard, p.ToolsOff, p.TimeoutMax = own.Guard, own.ToolsOff, own.TimeoutMax
		p.Limits, p.Env, p.Agents = own.Limits, own.Env, own.Agents
		if p.EffectiveNetwork() == own.Network {
			p.Egress, p.EgressMayAdd, p.Network = own.Egress, own.EgressMayAdd, own.Network
		}
	}
	return p
}

// sum returns a digest of each profile's keys, for the audit log.
func (k keySet) sum() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(k)) {
		keys := k[name]
		keys.Network = "" // which waits for a restart
		b, err := json.Marshal(keys)
		if err != nil {
			return err.Error()
		}
		out = append(out, fmt.Sprintf("%s sha256:%x", name, sha256.Sum256(b)))
	}
	return strings.Join(out, ", ")
}
