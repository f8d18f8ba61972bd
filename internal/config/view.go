package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// exposeEverywhere adds the rules for all profiles to each profile; a profile's own rule for a
// target wins.
func (d *decoder) exposeEverywhere() {
	all := d.doc.ExposePaths
	if key, err := chat.CheckExposePaths(all); err != nil || d.faulty("expose_paths") {
		d.fault(key, err)
		return
	}
	for name, p := range d.doc.Profiles {
		at := map[string]string{} // of a target: the key of its rule
		note := func(prefix string, rules []chat.Expose) {
			for i, e := range chat.OverrideExpose(nil, rules) {
				at[e.Target] = fmt.Sprintf("%sexpose_paths[%d]", prefix, i)
			}
		}
		prefix := "profiles." + name + "."
		note("", all)
		note(prefix, p.ExposePaths)
		p.ExposePaths = chat.OverrideExpose(all, p.ExposePaths)
		for i, e := range p.ExposePaths {
			d.doc.written[fmt.Sprintf("%sexpose_paths[%d]", prefix, i)] = at[e.Target]
		}
		d.doc.Profiles[name] = p
	}
}

// CheckViews calls check for each profile, to examine on the host the paths that it opens, and adds
// file and line to the errors.
func (cfg Config) CheckViews(check func(Config, chat.Profile) (key string, err error)) error {
	found := faults{places: cfg.places} // a fault in a rule for all profiles is one of each
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		key, err := check(cfg, cfg.Profiles[name])
		key = "profiles." + name + "." + key
		end := strings.Index(key, "]") + 1
		if rule, ok := cfg.written[key[:end]]; ok {
			key = rule + key[end:]
		}
		found.fault(key, err)
	}
	return errors.Join(found.errs...)
}
