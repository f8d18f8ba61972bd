package configfile

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/config"
)

//go:embed defaults.yaml
var defaultsYAML []byte

// defaultsName is the embedded file's name in errors.
const defaultsName = "defaults.yaml"

// Flags are what the command line and variables say.
type Flags struct {
	// File is the config file; empty means /etc/chatd/chatd.yaml, if it exists.
	File string
	// Set are values over the file; the last of a key counts.
	Set []Setting
}

// Load merges settings over the file over the defaults, and looks for the programs that they do not
// name. The error lists every fault.
func Load(f Flags) (config.Config, error) {
	name, text, err := config.ReadFile(f.File)
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := Compile(name, text, f.Set)
	cfg.FindPrograms()
	return cfg, err
}

// Compile is [Load] of a file that was read; with a nil text there is none. It looks at nothing else.
func Compile(name string, text []byte, set []Setting) (config.Config, error) {
	d, err := newDecoder(name, text)
	if err != nil {
		return config.Config{}, err
	}
	for _, s := range set {
		d.set(s)
	}
	cfg, err := d.finish()
	if text != nil {
		cfg.Sum = filerules.SumOf(text)
	}
	return cfg, err
}

// Rules reads a file of rules.
func Rules(file string) (*filerules.Policy, error) {
	text, err := config.ReadText(file)
	if err != nil {
		return nil, chat.Invalid("cannot read the policy: %w", err)
	}
	return rulefile.Load(file, text)
}

// readDefaults reads the embedded defaults.
func readDefaults() (*decoder, error) {
	d := &decoder{begun: map[string]bool{}, Faults: config.Faults{Places: map[string]string{}}}
	err := d.read(defaultsName, defaultsYAML)
	d.shipped, d.begun = maps.Clone(d.doc.Profiles), map[string]bool{}
	return d, err
}

// newDecoder reads the embedded defaults and, unless its text is nil, a file.
func newDecoder(name string, text []byte) (*decoder, error) {
	d, err := readDefaults()
	if err == nil && text != nil {
		err = d.read(name, text)
	}
	return d, err
}

// finish adds what follows from several keys, and checks it.
func (d *decoder) finish() (config.Config, error) {
	cfg := &d.doc.Config
	cfg.Places, cfg.Written = d.Places, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		if !d.profile(name) {
			delete(cfg.Profiles, name) // what is checked of all profiles cannot be said of it
		}
	}
	d.exposeEverywhere()
	cfg.Socket = cmp.Or(cfg.Socket, filepath.Join(cfg.Run, "chatd.sock"))
	cfg.Check(&d.Faults)
	if err := d.Err(); err != nil {
		return config.Config{}, err
	}
	return *cfg, nil
}

// profile adds what follows from several keys of a profile, and reports whether it has no fault.
func (d *decoder) profile(name string) bool {
	p, at := d.doc.Profiles[name], "profiles."+name
	if _, said := d.Places[at+".defaults"]; !said && p.AccessFile != "" {
		p.Defaults = false // the file has useDefaults
	}
	p.Commands, p.CommandsAdd = d.commands(at+".commands", slices.Concat(p.Commands, p.CommandsAdd)), nil
	if place, ok := d.Places[at+".guard"]; ok && d.begun[name] {
		p.Guard.Place = place
	}
	if _, said := d.Places[at+".guard.restrict_to_workspace"]; !said {
		p.Guard.RestrictToWorkspace = p.Guard.Preset == chat.GuardPicoClaw
	}
	p.Bridges = p.AdmittedBridges() // before exposeEverywhere: that is meant for every bridge
	d.doc.Profiles[name] = p
	return d.AddProfile(p)
}

// commands are the names of a list with the names of its sets in their place, and without those that
// it takes away.
func (d *decoder) commands(key string, list []string) []string {
	all := []string{}
	for _, name := range list {
		set, isSet := strings.CutPrefix(name, "@")
		gone, isGone := strings.CutPrefix(name, "-")
		switch names, known := d.doc.CommandSets[set]; {
		case isSet && !known:
			sets := config.Words(slices.Sorted(maps.Keys(d.doc.CommandSets)))
			d.Add(key, chat.Invalid("%s: want @ and one of %s", chat.Quote(name), sets))
		case isSet:
			all = append(all, names...)
		case isGone && !slices.Contains(all, gone):
			d.Add(key, config.Wrong(name, "the name of a command that is named before it"))
		case isGone:
			all = slices.DeleteFunc(all, func(n string) bool { return n == gone })
		default:
			all = append(all, name)
		}
	}
	return all
}

// exposeEverywhere adds the rules for all profiles to each profile; a profile's own rule for a
// target wins.
func (d *decoder) exposeEverywhere() {
	all := d.doc.ExposePaths
	if key, err := chat.CheckExposePaths(all); err != nil || d.Faulty("expose_paths") {
		d.Add(key, err)
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
			d.doc.Written[fmt.Sprintf("%sexpose_paths[%d]", prefix, i)] = at[e.Target]
		}
		d.doc.Profiles[name] = p
	}
}
