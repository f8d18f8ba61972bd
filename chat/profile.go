package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Network is the kind of network a session has.
type Network string

const (
	// NetworkNone is a network namespace of its own with only a loopback device.
	NetworkNone Network = "none"
	// NetworkOwn is a network namespace of its own, out of which chatd-egress carries connections
	// to what Egress lists, by name or by address.
	NetworkOwn Network = "own"
	// NetworkShared is the host's network namespace. No profile may ask for it: it is what a
	// session gets on a host that lacks [LayerNetwork], where the config excuses that.
	NetworkShared Network = "shared"
)

// Profile is a named policy that many chats share.
type Profile struct {
	Name   string `json:"name" yaml:"-"`
	Limits Limits `json:"limits" yaml:"limits"`
	// Bridges are the owners whose bridges may create chats in the profile; nil means the default
	// of [Profile.AdmittedBridges]. An existing chat keeps its profile.
	Bridges []string `json:"bridges" yaml:"bridges"`
	// Network is own or none; empty means none when Egress and EgressMayAdd are empty, else own.
	Network Network `json:"network" yaml:"network"`
	// Egress lists where the chat may connect. Empty means nowhere.
	Egress []Allow `json:"egress" yaml:"egress"`
	// EgressMayAdd bounds what Egress of one chat may have beyond it; see [EgressChange].
	EgressMayAdd []Allow `json:"egress_may_add" yaml:"egress_may_add"`
	// Secrets are names of secrets of the config that the chat may use and not read; see package
	// secret.
	Secrets []string `json:"secrets" yaml:"secrets"`
	// Commands are the programs on the PATH after the shims; "*" means every program of the host's
	// /usr/bin except those that gain privilege (setuid, capabilities).
	Commands []string `json:"commands" yaml:"commands"`
	// CommandsAdd are added to Commands when a config is read.
	CommandsAdd []string `json:"-" yaml:"commands_add,omitempty"`
	// Env are variables of every session and run; see [CheckEnv].
	Env map[string]string `json:"env" yaml:"env"`
	// Skeleton is a directory whose content is copied to a new home; empty means none.
	Skeleton string `json:"skeleton,omitempty" yaml:"skeleton"`
	// AccessFile holds the file rules (specs/0003-file-rules.md); empty means the built-in rules,
	// which deny nothing without Defaults.
	AccessFile string `json:"access_file,omitempty" yaml:"access_file"`
	// Defaults applies the default denials without a file: ~/.ssh, ~/.gnupg, .env and secrets. A
	// file has useDefaults instead.
	Defaults bool `json:"defaults,omitempty" yaml:"defaults"`
	// ExposePaths are paths of the host that sessions see (specs/0006-the-view.md).
	ExposePaths []Expose `json:"expose_paths" yaml:"expose_paths"`
	// AllowReadPaths and AllowWritePaths are regular expressions for further paths,
	// looked up below their literal beginning when a session starts; see [Grant].
	AllowReadPaths  []string `json:"allow_read_paths" yaml:"allow_read_paths"`
	AllowWritePaths []string `json:"allow_write_paths" yaml:"allow_write_paths"`
	// AllowReadOutsideWorkspace lets the file tools read every path in the view.
	AllowReadOutsideWorkspace bool `json:"allow_read_outside_workspace" yaml:"allow_read_outside_workspace"`
	// AllowNetlink lets programs make sockets of NETLINK_ROUTE, which ip(8) needs.
	AllowNetlink bool `json:"allow_netlink" yaml:"allow_netlink"`
	// AllowSeccomp lets programs load seccomp filters of their own.
	AllowSeccomp bool `json:"allow_seccomp" yaml:"allow_seccomp"`
	// Guard says which commands are refused before they run.
	Guard Guard `json:"guard" yaml:"guard"`
	// TimeoutMax is the longest timeout that a run may have; zero means [MaxTimeout].
	TimeoutMax Duration `json:"timeout_max" yaml:"timeout_max"`
	// SleepAfter is how long an awake chat may be idle before it is put to sleep; zero is for ever.
	SleepAfter Duration `json:"sleep_after" yaml:"sleep_after"`
	// FreezeAfter is how long it may be idle before its processes are frozen; zero is for ever. It
	// is less than SleepAfter.
	FreezeAfter Duration `json:"freeze_after" yaml:"freeze_after"`
	// KeepAwake keeps an idle chat awake when another one needs its place.
	KeepAwake bool `json:"keep_awake" yaml:"keep_awake"`
	// ReapAfter is how long a chat may be idle before it is archived and reaped; zero is for ever.
	ReapAfter Duration `json:"reap_after" yaml:"reap_after"`
	// ReapWithoutArchive reaps it without an archive.
	ReapWithoutArchive bool `json:"reap_without_archive" yaml:"reap_without_archive"`
	// ToolsOff are the tools that are switched off in a chat: names of [Tools], or [ToolReadOnly].
	ToolsOff []string `json:"tools_off" yaml:"tools_off"`
	// Agents have less, each by its name; see [Profile.As].
	Agents map[string]AgentTools `json:"agents" yaml:"agents"`
}

// EffectiveNetwork resolves an empty Network as its doc comment says.
func (p Profile) EffectiveNetwork() Network {
	switch {
	case p.Network != "":
		return p.Network
	case len(p.Egress)+len(p.EgressMayAdd) > 0:
		return NetworkOwn
	}
	return NetworkNone
}

// Fault is the error of one key.
type Fault struct {
	Key string
	Err error
}

// joinFaults is the error of all faults, or nil.
func joinFaults(what string, all []Fault) error {
	var errs []error
	for _, f := range all {
		errs = append(errs, fmt.Errorf("cannot use %s%s: %w", what, f.Key, f.Err))
	}
	return errors.Join(errs...)
}

// Validate reports the invalid fields of the profile.
func (p Profile) Validate() error { return joinFaults("profile "+p.Name+": ", p.Faults()) }

// Faults are the errors of the invalid fields: one for each, as far as they do not depend on each
// other.
func (p Profile) Faults() (all []Fault) {
	bad := func(key string, err error) {
		if err != nil {
			all = append(all, Fault{key, err})
		}
	}
	if err := CheckName("profile", p.Name); err != nil {
		return []Fault{{"", err}}
	}
	bad(p.validateNetwork())
	all = append(all, p.Limits.Faults()...)
	if p.Defaults && p.AccessFile != "" {
		bad("defaults", Invalid("defaults beside access_file: want useDefaults in the file"))
	}
	bad("sleep_after", CheckSleepAfter(p.SleepAfter))
	bad("freeze_after", CheckFreezeAfter(p.FreezeAfter, p.SleepAfter))
	if p.TimeoutMax != 0 {
		bad("timeout_max", CheckTimeoutMax(p.TimeoutMax))
	}
	i, err := CheckBridges(p.Bridges)
	bad(fmt.Sprintf("bridges[%d]", i), err)
	if p.Guard.Preset != "" && !slices.Contains(GuardPresets(), p.Guard.Preset) {
		bad("guard.preset", Invalid("%s: want one of default, picoclaw, none", Quote(string(p.Guard.Preset))))
	}
	for _, c := range p.Commands {
		if c != "*" && (c == "" || strings.ContainsAny(c, "/\x00") || c == "." || c == "..") {
			bad("commands", Invalid("command %s: want a program name without a slash, or *", Quote(c)))
		}
	}
	for agent := range p.Agents {
		bad("agents."+agent, CheckName("agent", agent))
	}
	name, err := CheckEnv(p.Env)
	bad(strings.TrimSuffix("env."+name, "."), err)
	bad(p.CheckView())
	return all
}

func (p Profile) validateNetwork() (key string, err error) {
	if p.Network == NetworkShared {
		const want = "want own, which carries connections to egress, by name too, or none"
		return "network", Invalid("network shared is no longer there: %s", want)
	}
	if !slices.Contains([]Network{"", NetworkOwn, NetworkNone}, p.Network) {
		return "network", Invalid("network %s: want own or none", Quote(string(p.Network)))
	}
	all := slices.Concat(p.Egress, p.EgressMayAdd)
	if network := p.EffectiveNetwork(); network == NetworkNone && len(p.Secrets) > 0 {
		return "network", Invalid("network %s with secrets: want network own", network)
	}
	if p.EffectiveNetwork() == NetworkNone && len(all) > 0 {
		return "network",
			Invalid("network none with %s in egress: nothing could reach it: want network own", all[0])
	}
	if i := slices.IndexFunc(all, Allow.isInside); i >= 0 {
		const why = "nothing outside has that address there, which is the chat's own or a name's"
		return "egress", Invalid("network own with %s in egress: %s: want another", all[i], why)
	}
	return "", nil
}

// EveryBridge in a profile's Bridges stands for every owner.
const EveryBridge = "*"

// AdmittedBridges are the owners whose bridges may create chats in the profile. Without a list,
// every bridge may use a profile that opens nothing, and no bridge one that opens something. Access
// opened for one bridge's chats is not meant for another's.
func (p Profile) AdmittedBridges() []string {
	switch {
	case p.Bridges != nil:
		return p.Bridges
	case len(p.Opens()) == 0:
		return []string{EveryBridge}
	}
	return []string{}
}

// MayUse reports whether the caller may create chats in the profile. Operators may.
func (p Profile) MayUse(c Caller) bool {
	if c.Role == RoleOperator {
		return true
	}
	bridges := p.AdmittedBridges()
	return c.Role == RoleBridge && c.Name != "" &&
		(slices.Contains(bridges, EveryBridge) || slices.Contains(bridges, c.Name))
}

// Opens names the keys that give the profile's chats more of the host, its kernel or the network
// than an empty profile gives.
func (p Profile) Opens() []string {
	keys := []string{}
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"egress", len(p.Egress) > 0},
		{"egress_may_add", len(p.EgressMayAdd) > 0},
		{"secrets", len(p.Secrets) > 0},
		{"skeleton", p.Skeleton != ""},
		{"expose_paths", len(p.ExposePaths) > 0},
		{"allow_read_paths", len(p.AllowReadPaths) > 0},
		{"allow_write_paths", len(p.AllowWritePaths) > 0},
		{"allow_read_outside_workspace", p.AllowReadOutsideWorkspace},
		{"allow_netlink", p.AllowNetlink},
		{"allow_seccomp", p.AllowSeccomp},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// CheckBridges accepts names of owners, and "*" for all. On an error, at is the index of the
// invalid name.
func CheckBridges(names []string) (at int, err error) {
	for i, name := range names {
		if name == EveryBridge {
			continue
		}
		if err := CheckName("owner", name); err != nil {
			return i, fmt.Errorf("%w: want the user name of a bridge, or *", err)
		}
	}
	return 0, nil
}
