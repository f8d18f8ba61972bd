package configfile

import (
	"cmp"
	_ "embed"
	"maps"
	"path/filepath"
	"slices"

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

// Defaults is the config of a host without a file.
func Defaults() (config.Config, error) {
	cfg, err := Compile("", nil, nil)
	cfg.FindPrograms()
	return cfg, err
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
