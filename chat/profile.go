package chat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Network is the kind of network a session has.
type Network string

const (
	// NetworkShared is the host's network namespace, restricted by owner rules.
	NetworkShared Network = "shared"
	// NetworkNone is a network namespace of its own with only a loopback device.
	NetworkNone Network = "none"
)

// Profile is a named policy that many chats share.
type Profile struct {
	Name   string `json:"name" yaml:"-"`
	Limits Limits `json:"limits" yaml:"limits"`
	// Bridges are the owners whose bridges may create chats in the profile; nil means the default
	// of [Profile.AdmittedBridges]. An existing chat keeps its profile.
	Bridges []string `json:"bridges" yaml:"bridges"`
	// Network is shared or none; empty means none when Egress is empty, else shared.
	Network Network `json:"network" yaml:"network"`
	// Egress lists where the chat may connect. Empty means nowhere.
	Egress []Allow `json:"egress" yaml:"egress"`
	// Resolvers become the chat's /etc/resolv.conf, and are the only addresses that it may reach on
	// port 53; an empty list allows none.
	Resolvers []netip.Addr `json:"resolvers" yaml:"resolvers"`
	// Commands are the programs on the PATH after the shims; "*" means every program of the host's
	// /usr/bin except those that gain privilege (setuid, capabilities).
	Commands []string `json:"commands" yaml:"commands"`
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
	// KeepAwake keeps an idle chat awake when another one needs its place.
	KeepAwake bool `json:"keep_awake" yaml:"keep_awake"`
	// ToolsOff are the tools that are switched off in a chat: names of [Tools].
	ToolsOff []string `json:"tools_off" yaml:"tools_off"`
}

// EffectiveNetwork resolves an empty Network as its doc comment says.
func (p Profile) EffectiveNetwork() Network {
	switch {
	case p.Network != "":
		return p.Network
	case len(p.Egress) == 0 && len(p.Resolvers) == 0:
		return NetworkNone
	}
	return NetworkShared
}

// Validate reports the first invalid field of the profile.
func (p Profile) Validate() error {
	if err := CheckName("profile", p.Name); err != nil {
		return err
	}
	if !slices.Contains([]Network{"", NetworkShared, NetworkNone}, p.Network) {
		return fmt.Errorf("cannot use profile %s: network %s: want shared or none: %w", p.Name, Quote(string(p.Network)), ErrInvalid)
	}
	if p.Network == NetworkNone && len(p.Egress)+len(p.Resolvers) > 0 {
		return fmt.Errorf("cannot use profile %s: network none with egress or resolvers: nothing could reach them: %w", p.Name, ErrInvalid)
	}
	if err := p.Limits.Validate(); err != nil {
		return fmt.Errorf("cannot use profile %s: %w", p.Name, err)
	}
	if p.Defaults && p.AccessFile != "" {
		return fmt.Errorf("cannot use profile %s: defaults beside access_file: want useDefaults in the file: %w", p.Name, ErrInvalid)
	}
	if err := CheckSleepAfter(p.SleepAfter); err != nil {
		return fmt.Errorf("cannot use profile %s: sleep_after %w", p.Name, err)
	}
	if p.TimeoutMax != 0 {
		if err := CheckTimeoutMax(p.TimeoutMax); err != nil {
			return fmt.Errorf("cannot use profile %s: timeout_max %w", p.Name, err)
		}
	}
	if _, err := CheckBridges(p.Bridges); err != nil {
		return fmt.Errorf("cannot use profile %s: bridges: %w", p.Name, err)
	}
	if err := p.validateGuard(); err != nil {
		return err
	}
	for _, c := range p.Commands {
		if c != "*" && (c == "" || strings.ContainsAny(c, "/\x00") || c == "." || c == "..") {
			return fmt.Errorf("cannot use profile %s: command %s: want a program name without a slash, or *: %w", p.Name, Quote(c), ErrInvalid)
		}
	}
	if name, err := CheckEnv(p.Env); err != nil {
		return fmt.Errorf("cannot use profile %s: env%s: %w", p.Name, dotted(name), err)
	}
	if key, err := p.CheckView(); err != nil {
		return fmt.Errorf("cannot use profile %s: %s: %w", p.Name, key, err)
	}
	return nil
}

// Allow is one destination a profile opens: "ADDRESS:PORT", "CIDR:PORT" or "CIDR:LOW-HIGH", IPv6 in
// brackets, TCP unless it begins with "udp:". Example: "203.0.113.5:443", "[2001:db8::/32]:443",
// "10.0.0.0/8:8000-8080". A listed private address is allowed.
type Allow struct {
	Prefix netip.Prefix
	Low    uint16
	High   uint16
	UDP    bool
}

// ParseAllow reads the form of [Allow].
func ParseAllow(s string) (Allow, error) {
	rest, udp := strings.CutPrefix(s, "udp:")
	rest = strings.TrimPrefix(rest, "tcp:")
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return Allow{}, allowError(s, "no port")
	}
	prefix, err := parsePrefix(rest[:i])
	if err != nil {
		return Allow{}, allowError(s, err.Error())
	}
	low, high, err := parsePorts(rest[i+1:])
	if err != nil {
		return Allow{}, allowError(s, err.Error())
	}
	return Allow{Prefix: prefix, Low: low, High: high, UDP: udp}, nil
}

func allowError(s, why string) error {
	return fmt.Errorf("cannot use egress %s: %s: want ADDRESS:PORT, CIDR:PORT or CIDR:LOW-HIGH, IPv6 in brackets: %w", Quote(s), why, ErrInvalid)
}

func parsePrefix(s string) (netip.Prefix, error) {
	bracketed := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if bracketed {
		s = s[1 : len(s)-1]
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s is no address and no CIDR", Quote(s))
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4 address written as IPv6", Quote(s))
	case p.Addr().Is6() != bracketed:
		return netip.Prefix{}, fmt.Errorf("%s has the wrong brackets", Quote(s))
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%s has bits set beyond its mask", Quote(s))
	}
	return p, nil
}

func parsePorts(s string) (low, high uint16, err error) {
	a, b, ranged := strings.Cut(s, "-")
	if !ranged {
		b = a
	}
	lo, err1 := parsePort(a)
	hi, err2 := parsePort(b)
	if err1 != nil || err2 != nil || lo > hi {
		return 0, 0, fmt.Errorf("%s is no port and no range of ports in 1-65535", Quote(s))
	}
	return lo, hi, nil
}

func parsePort(s string) (uint16, error) {
	ap, err := netip.ParseAddrPort("0.0.0.0:" + s)
	if err != nil || ap.Port() == 0 {
		return 0, fmt.Errorf("%s is no port", Quote(s))
	}
	return ap.Port(), nil
}

// String is the canonical form that ParseAllow reads.
func (a Allow) String() string {
	host := a.Prefix.String()
	if a.Prefix.IsSingleIP() {
		host = a.Prefix.Addr().String()
	}
	if a.Prefix.Addr().Is6() {
		host = "[" + host + "]"
	}
	proto := ""
	if a.UDP {
		proto = "udp:"
	}
	if a.Low == a.High {
		return fmt.Sprintf("%s%s:%d", proto, host, a.Low)
	}
	return fmt.Sprintf("%s%s:%d-%d", proto, host, a.Low, a.High)
}

// MarshalText is [Allow.String].
func (a Allow) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is [ParseAllow].
func (a *Allow) UnmarshalText(b []byte) error {
	v, err := ParseAllow(string(b))
	if err != nil {
		return err
	}
	*a = v
	return nil
}
