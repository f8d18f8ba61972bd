package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/journal"
)

// source is one origin of config keys. text is nil for flags.
type source struct {
	name string
	text []byte
	file fileConfig
}

// fileConfig is a config as it is written: every scalar as text, so that
// an absent key differs from a zero and an error can name its line.
type fileConfig struct {
	State          string                 `yaml:"state"`
	Run            string                 `yaml:"run"`
	Homes          string                 `yaml:"homes"`
	Socket         string                 `yaml:"socket"`
	Backend        string                 `yaml:"backend"`
	Cgroup         string                 `yaml:"cgroup"`
	Account        string                 `yaml:"account"`
	UserDB         string                 `yaml:"userdb"`
	User           string                 `yaml:"user"`
	Shim           string                 `yaml:"shim"`
	Enforce        string                 `yaml:"enforce"`
	EgressUser     string                 `yaml:"egress_user"`
	EgressProgram  string                 `yaml:"egress_program"`
	DNSServers     *[]string              `yaml:"dns_servers"`
	UIDs           string                 `yaml:"uids"`
	OperatorsGroup string                 `yaml:"operators_group"`
	BridgeGroup    string                 `yaml:"bridge_group"`
	AllowMissing   []string               `yaml:"allow_missing"`
	LandlockMinABI string                 `yaml:"landlock_min_abi"`
	MaxAwake       string                 `yaml:"max_awake"`
	MaxAwakeMemory string                 `yaml:"max_awake_memory"`
	OwnerShares    fileShares             `yaml:"owner_shares"`
	FileMax        string                 `yaml:"file_max"`
	AuditMax       string                 `yaml:"audit_max"`
	AuditKeep      string                 `yaml:"audit_keep"`
	LogLevel       string                 `yaml:"log_level"`
	Archive        *fileArchive           `yaml:"archive"`
	Secrets        map[string]fileSecret  `yaml:"secrets"`
	ExposePaths    []fileExpose           `yaml:"expose_paths"`
	Profiles       map[string]fileProfile `yaml:"profiles"`
}

type fileProfile struct {
	Bridges      *[]string         `yaml:"bridges"`
	Limits       map[string]string `yaml:"limits"`
	Network      string            `yaml:"network"`
	Egress       []string          `yaml:"egress"`
	EgressMayAdd []string          `yaml:"egress_may_add"`
	Secrets      []string          `yaml:"secrets"`
	Resolvers    []string          `yaml:"resolvers"` // is refused, with what to write now
	Skeleton     string            `yaml:"skeleton"`
	AccessFile   string            `yaml:"access_file"`
	Defaults     *bool             `yaml:"defaults"`
	Commands     *[]string         `yaml:"commands"`
	CommandsAdd  []string          `yaml:"commands_add"`
	Env          map[string]string `yaml:"env"`
	Guard        *fileGuard        `yaml:"guard"`
	TimeoutMax   string            `yaml:"timeout_max"`
	SleepAfter   string            `yaml:"sleep_after"`
	FreezeAfter  string            `yaml:"freeze_after"`
	KeepAwake    bool              `yaml:"keep_awake"`
	ReapAfter    string            `yaml:"reap_after"`
	ReapAnyway   bool              `yaml:"reap_without_archive"`
	ToolsOff     []string          `yaml:"tools_off"`
	View         fileView          `yaml:",inline"`
}

// parseSource reads YAML strictly: an unknown key and a key given twice are errors.
func parseSource(name string, text []byte) (source, error) {
	s := source{name: name, text: text}
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	err := dec.Decode(&s.file)
	if err == nil {
		err = dec.Decode(&fileConfig{})
		if err == nil {
			return s, fmt.Errorf("cannot use %s: want one YAML document, got more: %w", name, chat.ErrInvalid)
		}
	}
	if errors.Is(err, io.EOF) {
		return s, nil // an empty file, or no second document
	}
	return s, yamlFault(name, err)
}

func yamlFault(name string, err error) error {
	where, why := name, err.Error()
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil {
		where, why = fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), y.GetMessage()
	}
	if rest, ok := strings.CutPrefix(why, "unknown field "); ok {
		why = "unknown key " + rest + ": want a key of chatd serve --check"
	}
	return fmt.Errorf("cannot use %s: %s: %w", where, why, chat.ErrInvalid)
}

// fault makes err an error of the key, with its line.
func (s source) fault(key string, err error) error {
	where := s.name
	if line := s.line(key); line > 0 {
		where = fmt.Sprintf("%s:%d", s.name, line)
	}
	return fmt.Errorf("cannot use %s: %s: %w", where, key, err)
}

// line is the line of key, or of the nearest enclosing key that exists; 0 if none does.
func (s source) line(key string) int {
	for key != "" && s.text != nil {
		path, err := yaml.PathString("$." + key)
		if err == nil {
			node, err := path.ReadNode(bytes.NewReader(s.text))
			if err == nil && node.GetToken() != nil {
				return node.GetToken().Position.Line
			}
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// field is one scalar key: its place in a file, and how it is read into a Config.
type field struct {
	key string
	of  func(*fileConfig) string
	set func(string) error
}

// fields is the table of scalar keys.
func fields(cfg *Config) []field {
	return append(shareFields(cfg), []field{
		{"state", func(f *fileConfig) string { return f.State }, dir(&cfg.State)},
		{"run", func(f *fileConfig) string { return f.Run }, dir(&cfg.Run)},
		{"homes", func(f *fileConfig) string { return f.Homes }, dir(&cfg.Homes)},
		{"socket", func(f *fileConfig) string { return f.Socket }, dir(&cfg.Socket)},
		{"userdb", func(f *fileConfig) string { return f.UserDB }, dir(&cfg.UserDB)},
		{"user", func(f *fileConfig) string { return f.User }, word("a user name", &cfg.User)},
		{"shim", func(f *fileConfig) string { return f.Shim }, dir(&cfg.Shim)},
		{"enforce", func(f *fileConfig) string { return f.Enforce }, dir(&cfg.Enforce)},
		{"egress_user", func(f *fileConfig) string { return f.EgressUser },
			word("a user name", &cfg.EgressUser)},
		{"egress_program", func(f *fileConfig) string { return f.EgressProgram },
			dir(&cfg.EgressProgram)},
		{"backend", func(f *fileConfig) string { return f.Backend }, oneOf(&cfg.Backend, "auto", "systemd", "cgroupfs")},
		{"cgroup", func(f *fileConfig) string { return f.Cgroup }, word("a cgroup name", &cfg.Cgroup)},
		{"log_level", func(f *fileConfig) string { return f.LogLevel }, oneOf(&cfg.LogLevel, journal.Levels()...)},
		{"account", func(f *fileConfig) string { return f.Account }, oneOf(&cfg.Account, "auto", "userdb", "useradd")},
		{"uids", func(f *fileConfig) string { return f.UIDs }, uidRange(&cfg.UIDs)},
		{"operators_group", func(f *fileConfig) string { return f.OperatorsGroup }, word("a group name", &cfg.OperatorsGroup)},
		{"bridge_group", func(f *fileConfig) string { return f.BridgeGroup }, word("a group name", &cfg.BridgeGroup)},
		{"landlock_min_abi", func(f *fileConfig) string { return f.LandlockMinABI }, number(&cfg.LandlockMinABI, 1, 64)},
		{"max_awake", func(f *fileConfig) string { return f.MaxAwake }, number(&cfg.MaxAwake, 1, 1<<20)},
		{"max_awake_memory", func(f *fileConfig) string { return f.MaxAwakeMemory },
			sizeInto(&cfg.MaxAwakeMemory)},
		{"file_max", func(f *fileConfig) string { return f.FileMax }, fileSize(&cfg.FileMax)},
		{"audit_max", func(f *fileConfig) string { return f.AuditMax }, auditSize(&cfg.AuditMax)},
		{"audit_keep", func(f *fileConfig) string { return f.AuditKeep }, number(&cfg.AuditKeep, 0, 1<<20)},
	}...)
}

// profile reads one profile; limits, commands, guard, env and defaults that it leaves out are
// base's.
func (s source) profile(name string, f fileProfile, base chat.Profile) (chat.Profile, error) {
	at := "profiles." + name
	p := chat.Profile{Name: name, Network: chat.Network(f.Network), Commands: base.Commands, Skeleton: f.Skeleton, AccessFile: f.AccessFile, Limits: base.Limits, Env: base.Env}
	p.Secrets = f.Secrets
	p.Defaults = base.Defaults && f.AccessFile == "" // a file has useDefaults
	if f.Defaults != nil {
		p.Defaults = *f.Defaults
	}
	if f.Commands != nil {
		p.Commands = *f.Commands
	}
	p.Commands = slices.Concat(p.Commands, f.CommandsAdd)
	if f.Env != nil {
		p.Env = f.Env
	}
	if variable, err := chat.CheckEnv(p.Env); err != nil {
		return p, s.fault(strings.TrimSuffix(at+".env."+variable, "."), err)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Limits)) {
		if err := setLimit(&p.Limits, key, f.Limits[key]); err != nil {
			return p, s.fault(at+".limits."+key, err)
		}
	}
	var err error
	if p.Egress, err = s.allows(at+".egress", f.Egress); err != nil {
		return p, err
	}
	if p.EgressMayAdd, err = s.allows(at+".egress_may_add", f.EgressMayAdd); err != nil {
		return p, err
	}
	if len(f.Resolvers) > 0 {
		const want = "want it left out: chatd answers for the names in egress, and asks dns_servers"
		err := fmt.Errorf("the key is no longer there: %s: %w", want, chat.ErrInvalid)
		return p, s.fault(at+".resolvers", err)
	}
	for key, path := range map[string]string{"skeleton": p.Skeleton, "access_file": p.AccessFile} {
		if path != "" && !filepath.IsAbs(path) {
			return p, s.fault(at+"."+key, fmt.Errorf("%s: want an absolute path: %w", chat.Quote(path), chat.ErrInvalid))
		}
	}
	if p.Guard, err = s.guard(at+".guard", f.Guard, base.Guard); err != nil {
		return p, err
	}
	if err := timeoutMax(&p.TimeoutMax)(cmp.Or(f.TimeoutMax, chat.MaxTimeout.String())); err != nil {
		return p, s.fault(at+".timeout_max", err)
	}
	if err := sleepAfter(&p.SleepAfter)(cmp.Or(f.SleepAfter, "0")); err != nil {
		return p, s.fault(at+".sleep_after", err)
	}
	if err := longAge(&p.ReapAfter)(cmp.Or(f.ReapAfter, "0")); err != nil {
		return p, s.fault(at+".reap_after", err)
	}
	if err := freezeAfter(&p)(cmp.Or(f.FreezeAfter, "0")); err != nil {
		return p, s.fault(at+".freeze_after", err)
	}
	p.KeepAwake, p.ReapWithoutArchive = f.KeepAwake, f.ReapAnyway
	if p.ToolsOff, err = s.toolsOff(at+".tools_off", f.ToolsOff); err != nil {
		return p, err
	}
	if err := s.view(at, f.View, &p); err != nil {
		return p, err
	}
	if err := s.bridges(at+".bridges", f.Bridges, &p); err != nil {
		return p, err
	}
	if err := p.Validate(); err != nil {
		return p, s.fault(at, err)
	}
	return p, nil
}

// allows reads a list of destinations.
func (s source) allows(at string, texts []string) (list []chat.Allow, err error) {
	for i, text := range texts {
		allow, err := chat.ParseAllow(text)
		if err != nil {
			return nil, s.fault(fmt.Sprintf("%s[%d]", at, i), err)
		}
		list = append(list, allow)
	}
	return list, nil
}

// encodeYAML writes cfg with the names of its JSON fields, which are the keys of a file.
func encodeYAML(w io.Writer, cfg Config) error {
	return errors.Join(yaml.NewEncoder(w, yaml.UseJSONMarshaler(), yaml.IndentSequence(true)).Encode(cfg))
}
