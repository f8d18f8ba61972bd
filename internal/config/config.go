package config

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
)

//go:embed defaults.yaml
var defaultsYAML []byte

// File is read if it exists; a file named by a flag must exist.
const File = "/etc/chatd/chatd.yaml"

// programsDir holds chatd-shim, chatd-enforce and chatd-egress if they are not beside chatd.
const programsDir = "/usr/local/lib/chatd"

// Config is the config of serve; defaults.yaml documents each key. Paths are absolute, and every
// value is checked.
type Config struct {
	State          string                  `json:"state"`
	Run            string                  `json:"run"`
	Homes          string                  `json:"homes"`
	Socket         string                  `json:"socket"`
	Backend        string                  `json:"backend"`
	Cgroup         string                  `json:"cgroup"`
	Account        string                  `json:"account"`
	UserDB         string                  `json:"userdb"`
	User           string                  `json:"user"`
	Shim           string                  `json:"shim"`
	Enforce        string                  `json:"enforce"`
	EgressUser     string                  `json:"egress_user"`
	EgressProgram  string                  `json:"egress_program"`
	DNSServers     []netip.AddrPort        `json:"dns_servers"`
	UIDs           UIDRange                `json:"uids"`
	OperatorsGroup string                  `json:"operators_group"`
	BridgeGroup    string                  `json:"bridge_group"`
	AllowMissing   []chat.LayerName        `json:"allow_missing"`
	LandlockMinABI int                     `json:"landlock_min_abi"`
	MaxAwake       int                     `json:"max_awake"`
	MaxAwakeMemory uint64                  `json:"max_awake_memory"`
	OwnerShares    quota.Limits            `json:"owner_shares"`
	FileMax        uint64                  `json:"file_max"`
	AuditMax       uint64                  `json:"audit_max"`
	AuditKeep      int                     `json:"audit_keep"`
	LogLevel       string                  `json:"log_level"`
	Archive        *Archive                `json:"archive"` // nil keeps none
	Secrets        map[string]secret.Spec  `json:"secrets"`
	Profiles       map[string]chat.Profile `json:"profiles"`
	// places are where its keys are written, for errors that depend on the host; written has the keys
	// of the rules of expose_paths that are in profiles.
	places, written map[string]string
	flags           Flags
}

// Flags are what the command line and variables say.
type Flags struct {
	// File is the config file; empty means /etc/chatd/chatd.yaml, if it exists.
	File string
	// Set are values over the file; the last of a key counts.
	Set []Setting
}

// Load merges settings over the file over the defaults. The error lists every fault.
func Load(f Flags) (Config, error) {
	d, err := readFiles(f.File)
	if err != nil {
		return Config{}, err
	}
	for _, s := range f.Set {
		d.set(s)
	}
	cfg, err := d.finish()
	cfg.flags = f
	return cfg, err
}

// Again reads the config again, with the same flags.
func (cfg Config) Again() (Config, error) { return Load(cfg.flags) }

// Defaults is the config of a host without a file.
func Defaults() (Config, error) {
	d, err := readDefaults()
	if err != nil {
		return Config{}, err
	}
	return d.finish()
}

// readDefaults reads the embedded defaults.
func readDefaults() (*decoder, error) {
	d := &decoder{begun: map[string]bool{}, faults: faults{places: map[string]string{}}}
	err := d.read(defaultsName, defaultsYAML)
	d.shipped, d.begun = maps.Clone(d.doc.Profiles), map[string]bool{}
	return d, err
}

// readFiles reads the embedded defaults and the file.
func readFiles(file string) (*decoder, error) {
	d, err := readDefaults()
	if err != nil {
		return nil, err
	}
	text, err := readText(cmp.Or(file, File))
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the config: %w: %w", err, chat.ErrInvalid)
	}
	return d, d.read(cmp.Or(file, File), text)
}

// finish adds what follows from several keys, and checks it.
func (d *decoder) finish() (Config, error) {
	cfg := &d.doc.Config
	cfg.places, cfg.written = d.places, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		if !d.profile(name) {
			delete(cfg.Profiles, name) // what is checked of all profiles cannot be said of it
		}
	}
	d.exposeEverywhere()
	d.secrets()
	d.archive()
	cfg.Socket = cmp.Or(cfg.Socket, filepath.Join(cfg.Run, "chatd.sock"))
	if len(cfg.Socket) > maxSocketPath {
		d.fault("socket", wrong(cfg.Socket, fmt.Sprintf("at most %d bytes (unix(7))", maxSocketPath)))
	}
	cfg.Shim = cmp.Or(cfg.Shim, FindProgram("chatd-shim"))
	cfg.Enforce = cmp.Or(cfg.Enforce, FindProgram("chatd-enforce"))
	cfg.EgressProgram = cmp.Or(cfg.EgressProgram, FindProgram("chatd-egress"))
	if cfg.EgressUser == cfg.User && cfg.User != "" {
		d.fault("egress_user", wrong(cfg.EgressUser, "another than user, for each needs its own"))
	}
	d.checkMemory()
	if err := errors.Join(d.errs...); err != nil {
		return Config{}, err
	}
	return *cfg, nil
}

// profile adds what follows from several keys of a profile, and reports whether it has no fault.
func (d *decoder) profile(name string) bool {
	p, at := d.doc.Profiles[name], "profiles."+name
	if _, said := d.places[at+".defaults"]; !said && p.AccessFile != "" {
		p.Defaults = false // the file has useDefaults
	}
	p.Commands, p.CommandsAdd = d.commands(at+".commands", slices.Concat(p.Commands, p.CommandsAdd)), nil
	if place, ok := d.places[at+".guard"]; ok && d.begun[name] {
		p.Guard.Place = place
	}
	if _, said := d.places[at+".guard.restrict_to_workspace"]; !said {
		p.Guard.RestrictToWorkspace = p.Guard.Preset == chat.GuardPicoClaw
	}
	p.Bridges = p.AdmittedBridges() // before exposeEverywhere: that is meant for every bridge
	for _, f := range p.Faults() {
		list, _, _ := strings.Cut(f.Key, "[")
		if list == "" || !d.faulty(at+"."+list) {
			d.fault(strings.TrimSuffix(at+"."+f.Key, "."), f.Err)
		}
	}
	d.checkReap(p)
	d.doc.Profiles[name] = p
	return !d.faulty(at)
}

// CheckNames looks up the users and groups that the config names, except for those that chatd was built
// with: without such a one, root alone has its role, or chatd takes a uid of nobody's.
func (cfg Config) CheckNames(find func(database, name string) error) error {
	usual, err := Defaults()
	errs := []error{err}
	user := ""
	if cfg.Archive != nil {
		user = cfg.Archive.User
	}
	for _, n := range [][4]string{
		{"group", "operators_group", cfg.OperatorsGroup, usual.OperatorsGroup},
		{"group", "bridge_group", cfg.BridgeGroup, usual.BridgeGroup},
		{"user", "user", cfg.User, usual.User}, {"user", "egress_user", cfg.EgressUser, usual.EgressUser},
		{"user", "archive.user", user, ""},
	} {
		database := strings.Replace(n[0], "user", "passwd", 1)
		if n[2] == n[3] || !errors.Is(find(database, n[2]), chat.ErrNotFound) {
			continue
		}
		why := fmt.Errorf("%s: this host has no such %s: %w", chat.Quote(n[2]), n[0], chat.ErrInvalid)
		errs = append(errs, faultAt(cfg.places, n[1], why))
	}
	return errors.Join(errs...)
}

// maxSocketPath leaves room in sun_path's 108 bytes for the temporary name at which the socket is
// bound.
const maxSocketPath = 90

// FindProgram is the default path of one of chatd's own programs.
func FindProgram(name string) string {
	if exe, err := os.Executable(); err == nil {
		return programBeside(exe, name)
	}
	return filepath.Join(programsDir, name)
}

func programBeside(exe, name string) string {
	beside := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return filepath.Join(programsDir, name)
}

// YAML writes cfg as a file from which chatd reads an equal config.
func (cfg Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	// The names of JSON's fields are the keys of a file.
	if err := yaml.NewEncoder(&b, yaml.UseJSONMarshaler(), yaml.IndentSequence(true)).Encode(cfg); err != nil {
		return nil, fmt.Errorf("cannot write the config: %w", err)
	}
	return b.Bytes(), nil
}
