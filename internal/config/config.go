package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
)

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
	// Sum is the SHA-256 of the file's text in hex; empty without a file.
	Sum string `json:"-"`
	// Places are where its keys are written, for errors that depend on the host; Written has the keys
	// of the rules of expose_paths that are in profiles.
	Places  map[string]string `json:"-"`
	Written map[string]string `json:"-"`
}

// Homes is the default of the key homes.
const Homes = "/srv/chatd/homes"

// Usual are the names that chatd is built with, which a host may lack, by their keys.
func Usual() map[string]string {
	return map[string]string{
		"operators_group": "chatd-operators", "bridge_group": "chatd-bridge", "user": "chatd",
		"egress_user": "chatd-egress",
	}
}

// FindPrograms sets the programs that the config does not name to those beside this one.
func (cfg *Config) FindPrograms() {
	cfg.Shim = cmp.Or(cfg.Shim, FindProgram("chatd-shim"))
	cfg.Enforce = cmp.Or(cfg.Enforce, FindProgram("chatd-enforce"))
	cfg.EgressProgram = cmp.Or(cfg.EgressProgram, FindProgram("chatd-egress"))
	if cfg.Archive != nil {
		cfg.Archive.Program = cmp.Or(cfg.Archive.Program, FindProgram("chatd-archive"))
	}
}

// CheckNames looks up the users and groups that the config names, except for those that chatd was built
// with: without such a one, root alone has its role, or chatd takes a uid of nobody's.
func (cfg Config) CheckNames(find func(database, name string) error) error {
	var errs []error
	user, usual := "", Usual()
	if cfg.Archive != nil {
		user = cfg.Archive.User
	}
	for _, n := range [][3]string{
		{"group", "operators_group", cfg.OperatorsGroup}, {"group", "bridge_group", cfg.BridgeGroup},
		{"user", "user", cfg.User}, {"user", "egress_user", cfg.EgressUser}, {"user", "archive.user", user},
	} {
		database := strings.Replace(n[0], "user", "passwd", 1)
		if n[2] == usual[n[1]] || !errors.Is(find(database, n[2]), chat.ErrNotFound) {
			continue
		}
		why := chat.Invalid("%s: this host has no such %s", chat.Quote(n[2]), n[0])
		errs = append(errs, faultAt(cfg.Places, n[1], why))
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

// RestartNeeded reports whether two configs differ in keys that a reload does not apply.
func RestartNeeded(a, b Config) (bool, error) {
	one, err := json.Marshal(withoutChecks(a))
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(withoutChecks(b))
	return !bytes.Equal(one, other), err
}

// withoutChecks is cfg without the keys that a reload applies: the log level, the DNS servers,
// those by which runs are checked, and those that hold for chats that live. Another kind of network
// is none of them, and the egress through it waits too.
func withoutChecks(cfg Config) Config {
	cfg.LogLevel, cfg.DNSServers = "", nil
	cfg.Profiles = maps.Clone(cfg.Profiles)
	for name, p := range cfg.Profiles {
		p.Network = p.EffectiveNetwork()
		p.Limits, p.Env, p.Egress, p.EgressMayAdd, p.Agents = chat.Limits{}, nil, nil, nil, nil
		p.Guard, p.ToolsOff, p.TimeoutMax, p.AccessFile, p.Defaults = chat.Guard{}, nil, 0, "", false
		cfg.Profiles[name] = p
	}
	return cfg
}
