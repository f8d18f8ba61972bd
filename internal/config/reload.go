package config

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/chatd/chatd/chat"
)

// RestartNeeded reports whether two configs differ in keys that a reload does not apply.
func RestartNeeded(a, b Config) (bool, error) {
	one, err := json.Marshal(withoutChecks(a))
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(withoutChecks(b))
	return !bytes.Equal(one, other), err
}

// withoutChecks is cfg without the keys that a reload applies: the log level, the DNS servers,
// those by which runs are checked, and those that hold for chats that live. Another kind of network
// is none of them, and the egress through it waits too.
func withoutChecks(cfg Config) Config {
	cfg.LogLevel, cfg.DNSServers = "", nil
	cfg.Profiles = maps.Clone(cfg.Profiles)
	for name, p := range cfg.Profiles {
		p.Network = p.EffectiveNetwork()
		p.Limits, p.Env, p.Egress, p.EgressMayAdd, p.Agents = chat.Limits{}, nil, nil, nil, nil
		p.Guard, p.ToolsOff, p.TimeoutMax, p.AccessFile, p.Defaults = chat.Guard{}, nil, 0, "", false
		cfg.Profiles[name] = p
	}
	return cfg
}
