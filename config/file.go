package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/journal"
	"github.com/chatd/chatd/quota"
)

// source is one origin of config keys. text is nil for flags. misfits are the keys that there are not,
// and the values of a wrong kind.
type source struct {
	name    string
	text    []byte
	file    fileConfig
	misfits []error
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
	OwnerShares    map[quota.Share]string `yaml:"owner_shares"`
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
			size(&cfg.MaxAwakeMemory, anySize, "")},
		{"file_max", func(f *fileConfig) string { return f.FileMax },
			size(&cfg.FileMax, fitsFiles, "1MiB to 1TiB")},
		{"audit_max", func(f *fileConfig) string { return f.AuditMax },
			size(&cfg.AuditMax, fitsAudit, "0, for never, or at least 64KiB")},
		{"audit_keep", func(f *fileConfig) string { return f.AuditKeep }, number(&cfg.AuditKeep, 0, 1<<20)},
	}...)
}

// profile reads one profile; limits, commands, guard, env and defaults that it leaves out are
// base's. The error has all faults.
func (s source) profile(name string, f fileProfile, base chat.Profile) (chat.Profile, error) {
	bad := faults{source: s, at: "profiles." + name + "."}
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
		bad.add(strings.TrimSuffix("env."+variable, "."), err)
		p.Env = nil
	}
	for _, key := range slices.Sorted(maps.Keys(f.Limits)) {
		bad.add("limits."+key, setLimit(&p.Limits, key, f.Limits[key]))
	}
	p.Egress, p.EgressMayAdd = bad.allows("egress", f.Egress), bad.allows("egress_may_add", f.EgressMayAdd)
	if len(f.Resolvers) > 0 {
		const want = "want it left out: chatd answers for the names in egress, and asks dns_servers"
		bad.add("resolvers", fmt.Errorf("the key is no longer there: %s: %w", want, chat.ErrInvalid))
	}
	for key, path := range map[string]string{"skeleton": p.Skeleton, "access_file": p.AccessFile} {
		bad.read(key, path, dir(&path))
	}
	p.Guard = bad.guard(f.Guard, base.Guard)
	p.TimeoutMax = chat.MaxTimeout
	bad.read("timeout_max", f.TimeoutMax, into(&p.TimeoutMax, duration, chat.CheckTimeoutMax))
	bad.read("sleep_after", f.SleepAfter, age(&p.SleepAfter, chat.CheckSleepAfter))
	bad.read("reap_after", f.ReapAfter, age(&p.ReapAfter, checkLongAge))
	bad.read("freeze_after", f.FreezeAfter, age(&p.FreezeAfter, func(d chat.Duration) error {
		return chat.CheckFreezeAfter(d, p.SleepAfter)
	}))
	p.KeepAwake, p.ReapWithoutArchive = f.KeepAwake, f.ReapAnyway
	p.ToolsOff = bad.toolsOff(f.ToolsOff)
	bad.view(f.View, &p)
	bad.bridges(f.Bridges, &p)
	bad.at = strings.TrimSuffix(bad.at, ".")
	for _, err := range p.Faults() { // of what was read without a fault
		bad.add("", err)
	}
	return p, errors.Join(bad.all...)
}
