package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
)

// bridges reads the owners that may create chats in a profile. It precedes the paths that are
// exposed to every profile: those are meant for every bridge.
func (f *faults) bridges(list *[]string, p *chat.Profile) {
	if list != nil {
		p.Bridges = append([]string{}, *list...)
		if i, err := chat.CheckBridges(p.Bridges); err != nil {
			f.add(fmt.Sprintf("bridges[%d]", i), err)
			p.Bridges = nil
		}
	}
	p.Bridges = p.AdmittedBridges()
}

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
