package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// CheckViews calls check for each profile, to examine on the host the paths that it opens, and adds
// file and line to the errors.
func (cfg Config) CheckViews(check func(Config, chat.Profile) (key string, err error)) error {
	found := Faults{Places: cfg.Places} // a fault in a rule for all profiles is one of each
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		key, err := check(cfg, cfg.Profiles[name])
		key = "profiles." + name + "." + key
		end := strings.Index(key, "]") + 1
		if rule, ok := cfg.Written[key[:end]]; ok {
			key = rule + key[end:]
		}
		found.Add(key, err)
	}
	return found.Err()
}
