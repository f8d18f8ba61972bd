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

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/secret"
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
	// from is where it was read, for errors that depend on the host.
	from  []source
	flags Flags
}

// UIDRange is the uids that chats may get, both ends included.
type UIDRange struct{ Low, High uint32 }

// MarshalText writes LOW-HIGH.
func (r UIDRange) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d-%d", r.Low, r.High), nil
}

// Flags are the command line's values, which override the file's. An empty one is not set.
type Flags struct {
	// File is the config file; empty means /etc/chatd/chatd.yaml, if it exists.
	File                               string
	State, Run, Homes, Backend, Socket string
	AllowMissing                       []string
}

// Load merges flags over the file over the defaults.
func Load(f Flags) (Config, error) {
	src, err := readSources(f.File)
	if err != nil {
		return Config{}, err
	}
	flags := source{name: "the flags and CHATD_ variables", file: fileConfig{
		State: f.State, Run: f.Run, Homes: f.Homes, Backend: f.Backend, Socket: f.Socket}}
	for _, layer := range f.AllowMissing {
		flags.file.AllowMissing = append(flags.file.AllowMissing, strings.TrimSpace(layer))
	}
	cfg, err := merge(append(src, flags))
	cfg.flags = f
	return cfg, err
}

// Again reads the config again, with the same flags.
func (cfg Config) Again() (Config, error) { return Load(cfg.flags) }

// Defaults is the config of a host without a file.
func Defaults() (Config, error) {
	defaults, err := parseSource(defaultsName, defaultsYAML)
	if err != nil {
		return Config{}, err
	}
	return merge([]source{defaults})
}

// readSources reads the embedded defaults and the file.
func readSources(file string) ([]source, error) {
	defaults, err := parseSource(defaultsName, defaultsYAML)
	if err != nil {
		return nil, err
	}
	text, err := readText(cmp.Or(file, File))
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return []source{defaults}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the config: %w: %w", err, chat.ErrInvalid)
	}
	own, err := parseSource(cmp.Or(file, File), text)
	return []source{defaults, own}, err
}

// merge takes each key from the last source that has it and checks it there. The error lists every
// fault.
func merge(sources []source) (Config, error) {
	cfg, errs := Config{OwnerShares: quota.Limits{}, from: sources}, []error{}
	for _, f := range fields(&cfg) {
		for _, s := range slices.Backward(sources) {
			value := f.of(&s.file)
			if value == "" {
				continue
			}
			if err := f.set(value); err != nil {
				errs = append(errs, s.fault(f.key, err))
			}
			break
		}
	}
	for _, s := range sources {
		errs = append(errs, s.misfits...)
		errs = append(errs, s.lists(&cfg), s.dnsServers(&cfg), s.secrets(&cfg), s.archive(&cfg))
	}
	cfg.Socket = cmp.Or(cfg.Socket, filepath.Join(cfg.Run, "chatd.sock"))
	if len(cfg.Socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("cannot use socket %s: %d bytes, want at most %d (unix(7)): %w", chat.Quote(cfg.Socket), len(cfg.Socket), maxSocketPath, chat.ErrInvalid))
	}
	cfg.Shim, cfg.Enforce = cmp.Or(cfg.Shim, FindProgram("chatd-shim")), cmp.Or(cfg.Enforce, FindProgram("chatd-enforce"))
	if cfg.EgressUser == cfg.User && cfg.User != "" {
		errs = append(errs, fmt.Errorf("cannot use egress_user %s: it is user too, and each needs its own: %w",
			chat.Quote(cfg.EgressUser), chat.ErrInvalid))
	}
	cfg.EgressProgram = cmp.Or(cfg.EgressProgram, FindProgram("chatd-egress"))
	errs = append(errs, exposeEverywhere(&cfg, sources), checkSecrets(cfg, sources), checkMemory(cfg, sources), checkReaps(cfg, sources))
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// CheckNames looks up the users and groups that the config names, but for those that chatd was built
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
		errs = append(errs, faultIn(cfg.from, n[1], why))
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

// lists copies the lists and the profiles of s into cfg.
func (s source) lists(cfg *Config) error {
	errs := []error{}
	for i, name := range s.file.AllowMissing {
		var layer chat.LayerName
		if err := oneOf(&layer, chat.LayerNames()...)(name); err != nil {
			errs = append(errs, s.fault(fmt.Sprintf("allow_missing[%d]", i), err))
			continue
		}
		cfg.AllowMissing = append(cfg.AllowMissing, layer)
	}
	before := maps.Clone(cfg.Profiles) // the earlier sources' profiles
	if cfg.Profiles == nil {
		cfg.Profiles = map[string]chat.Profile{}
	}
	for _, name := range defaultFirst(s.file.Profiles) {
		profile, err := s.profile(name, s.file.Profiles[name], baseOf(before, cfg.Profiles, name))
		if err != nil {
			errs = append(errs, err)
			delete(cfg.Profiles, name) // what is checked of all profiles cannot be said of it
			continue
		}
		cfg.Profiles[name] = profile
	}
	return errors.Join(errs...)
}

// baseOf has the values of the keys that a profile leaves out: the shipped profile of its name, or
// limits, commands and guard of the default.
func baseOf(before, now map[string]chat.Profile, name string) chat.Profile {
	if base, shipped := before[name]; shipped {
		return base
	}
	base, ok := before[chat.DefaultProfile]
	if !ok {
		base = now[chat.DefaultProfile]
	}
	return chat.Profile{Limits: chat.DefaultLimits(), Commands: base.Commands, Guard: base.Guard}
}

// defaultFirst sorts the names of profiles, default first: others may inherit from it.
func defaultFirst(profiles map[string]fileProfile) []string {
	names := slices.Sorted(maps.Keys(profiles))
	slices.SortStableFunc(names, func(a, b string) int {
		switch chat.DefaultProfile {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return names
}

// YAML writes cfg as a file from which chatd reads an equal config.
func (cfg Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	if err := encodeYAML(&b, cfg); err != nil {
		return nil, fmt.Errorf("cannot write the config: %w", err)
	}
	return b.Bytes(), nil
}
