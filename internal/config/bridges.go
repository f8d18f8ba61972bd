package config

import (
	"maps"
	"slices"
)

// OperatorsOnly lists the profiles in which no bridge may create a chat.
func (cfg Config) OperatorsOnly() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		if len(cfg.Profiles[name].AdmittedBridges()) == 0 {
			names = append(names, name)
		}
	}
	return names
}
