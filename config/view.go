package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// fileExpose is one rule of expose_paths, as it is written.
type fileExpose struct {
	Source string `yaml:"source"`
	Target string `yaml:"target"`
	Mode   string `yaml:"mode"`
}

// fileView has the keys that open the host and its kernel to a profile, as they are written.
type fileView struct {
	ExposePaths     []fileExpose `yaml:"expose_paths"`
	AllowReadPaths  []string     `yaml:"allow_read_paths"`
	AllowWritePaths []string     `yaml:"allow_write_paths"`
	AllowReadAll    string       `yaml:"allow_read_outside_workspace"`
	AllowNetlink    string       `yaml:"allow_netlink"`
	AllowSeccomp    string       `yaml:"allow_seccomp"`
}

// expose reads the rules of expose_paths, without access to the host's files.
func (f *faults) expose(rules []fileExpose) (out []chat.Expose) {
	for _, r := range rules {
		out = append(out, chat.Expose{Source: r.Source, Target: r.Target, Mode: chat.Mode(r.Mode)})
	}
	if key, err := chat.CheckExposePaths(out); err != nil {
		f.add(key, err)
		return nil
	}
	return out
}

// view reads the keys of v into p.
func (f *faults) view(v fileView, p *chat.Profile) {
	p.ExposePaths = f.expose(v.ExposePaths)
	p.AllowReadPaths, p.AllowWritePaths = v.AllowReadPaths, v.AllowWritePaths
	if _, key, err := p.Grants(); err != nil {
		f.add(key, err)
		p.AllowReadPaths, p.AllowWritePaths = nil, nil
	}
	f.read("allow_read_outside_workspace", v.AllowReadAll, boolean(&p.AllowReadOutsideWorkspace))
	f.read("allow_netlink", v.AllowNetlink, boolean(&p.AllowNetlink))
	f.read("allow_seccomp", v.AllowSeccomp, boolean(&p.AllowSeccomp))
}

// exposeEverywhere adds the rules for all profiles to each profile; a profile's own rule for a
// target wins.
func exposeEverywhere(cfg *Config, sources []source) error {
	var all []chat.Expose
	for _, s := range sources {
		bad := faults{source: s}
		all = chat.OverrideExpose(all, bad.expose(s.file.ExposePaths))
		if len(bad.all) > 0 {
			return bad.all[0]
		}
	}
	for name, p := range cfg.Profiles {
		p.ExposePaths = chat.OverrideExpose(all, p.ExposePaths)
		cfg.Profiles[name] = p
	}
	return nil
}

// CheckViews calls check for each profile, to examine on the host the paths that it opens, and adds
// file and line to the errors.
func (cfg Config) CheckViews(check func(Config, chat.Profile) (key string, err error)) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		p := cfg.Profiles[name]
		if key, err := check(cfg, p); err != nil {
			s, at := placeOf(cfg.from, p, key)
			err = s.fault(at, err)
			// A fault in a rule for all profiles is an error of each profile.
			if !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// placeOf finds where a key of a merged profile is written: in the last source that has the profile
// or, for a rule of all profiles, the rule.
func placeOf(sources []source, p chat.Profile, key string) (source, string) {
	var i int
	isRule := strings.HasPrefix(key, "expose_paths[")
	_, field, _ := strings.Cut(key, "]")
	if _, err := fmt.Sscanf(key, "expose_paths[%d]", &i); isRule && err == nil && i < len(p.ExposePaths) {
		target := p.ExposePaths[i].At()
		for _, s := range slices.Backward(sources) {
			if f, ok := s.file.Profiles[p.Name]; ok {
				if n := indexOfTarget(f.View.ExposePaths, target); n >= 0 {
					return s, fmt.Sprintf("profiles.%s.expose_paths[%d]%s", p.Name, n, field)
				}
				break
			}
		}
		for _, s := range slices.Backward(sources) {
			if n := indexOfTarget(s.file.ExposePaths, target); n >= 0 {
				return s, fmt.Sprintf("expose_paths[%d]%s", n, field)
			}
		}
	}
	for _, s := range slices.Backward(sources) {
		if _, ok := s.file.Profiles[p.Name]; ok {
			return s, "profiles." + p.Name + "." + key
		}
	}
	return source{name: "the config"}, "profiles." + p.Name + "." + key
}

func indexOfTarget(rules []fileExpose, target string) int {
	return slices.IndexFunc(rules, func(r fileExpose) bool {
		one := chat.OverrideExpose(nil, []chat.Expose{{Source: r.Source, Target: cmp.Or(r.Target, r.Source)}})
		return one[0].Target == target
	})
}
