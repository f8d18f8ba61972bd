package config

import (
	"bytes"
	"maps"

	"github.com/chatd/chatd/chat"
)

// RestartNeeded reports whether two configs differ in anything but what a running
// daemon takes over from the second.
func RestartNeeded(a, b Config) (bool, error) {
	one, err := withoutJudged(a).YAML()
	if err != nil {
		return false, err
	}
	other, err := withoutJudged(b).YAML()
	return !bytes.Equal(one, other), err
}

// withoutJudged is cfg without what a reload takes over: the log level, and what runs are
// judged by.
func withoutJudged(cfg Config) Config {
	cfg.LogLevel = ""
	cfg.Profiles = maps.Clone(cfg.Profiles)
	for name, p := range cfg.Profiles {
		p.Guard, p.ToolsOff, p.TimeoutMax, p.AccessFile, p.Defaults = chat.Guard{}, nil, 0, "", false
		cfg.Profiles[name] = p
	}
	return cfg
}
