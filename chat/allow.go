package chat

import (
	"fmt"
	"net/netip"
	"strings"
)

// Allow is one destination a profile opens: a name, an address or a CIDR, with ":PORT" or
// ":LOW-HIGH", IPv6 in brackets, TCP unless it begins with "udp:". Example: "api.example.com:443",
// "*.example.com:443", "203.0.113.5:443", "[2001:db8::/32]:443", "10.0.0.0/8:8000-8080". A listed
// private address is allowed. "nosni:" in front of a name is for clients whose TLS tells none.
type Allow struct {
	// Host is a name in the form of [CheckHost], or "*." before one, which means the names below
	// it and not itself; empty for an address.
	Host   string
	Prefix netip.Prefix
	Low    uint16
	High   uint16
	UDP    bool
	// NoSNI: TLS without a server name (RFC 6066, section 3) is to this name, too. With one, it
	// must be this.
	NoSNI bool
}

// ParseAllow reads the form of [Allow].
func ParseAllow(s string) (Allow, error) {
	rest, udp := strings.CutPrefix(s, "udp:")
	rest, noSNI := strings.CutPrefix(rest, "nosni:")
	if !udp && !noSNI {
		rest = strings.TrimPrefix(s, "tcp:")
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return Allow{}, allowError(s, "no port")
	}
	a := Allow{UDP: udp, NoSNI: noSNI}
	var err error
	if a.Host, a.Prefix, err = parseTo(rest[:i]); err != nil {
		return Allow{}, allowError(s, err.Error())
	}
	if a.Low, a.High, err = parsePorts(rest[i+1:]); err != nil {
		return Allow{}, allowError(s, err.Error())
	}
	if a.NoSNI && (a.UDP || !a.Named()) {
		return Allow{}, allowError(s, "nosni: is for names of TCP")
	}
	return a, nil
}

// parseTo reads a name, an address or a CIDR.
func parseTo(s string) (host string, prefix netip.Prefix, err error) {
	if strings.ContainsAny(s, "/[]:") || endsInNumber(s) {
		prefix, err = parsePrefix(s)
		return "", prefix, err
	}
	below, wildcard := strings.CutPrefix(s, "*.")
	host, err = CheckHost(below)
	switch {
	case err != nil:
		return "", netip.Prefix{}, err
	case host == "localhost", strings.HasSuffix(host, ".localhost"): // RFC 6761, section 6.3
		return "", netip.Prefix{}, fmt.Errorf("%s is the chat itself: want no entry", Quote(s))
	case host == "tcp", host == "udp", host == "nosni":
		return "", netip.Prefix{}, fmt.Errorf("%s is a protocol: want a host after it", Quote(s))
	case wildcard && !strings.Contains(host, "."):
		err = fmt.Errorf("%s means all of a top level: want two labels after the star", Quote(s))
		return "", netip.Prefix{}, err
	case wildcard:
		host = "*." + host
	}
	return host, netip.Prefix{}, nil
}

// Named reports whether the destination is a name.
func (a Allow) Named() bool { return a.Host != "" }

// MatchesHost reports whether name, in the form of [CheckHost], is a's own or, with a star, below
// it.
func (a Allow) MatchesHost(name string) bool {
	if rest, star := strings.CutPrefix(a.Host, "*"); star {
		return len(name) > len(rest) && strings.HasSuffix(name, rest)
	}
	return a.Host != "" && a.Host == name
}

// CoversHost reports whether a is for each name that b is for.
func (a Allow) CoversHost(b Allow) bool {
	return a.Named() && (a.Host == b.Host || a.MatchesHost(b.Host))
}

// OpensPort reports whether a is about a port of the protocol.
func (a Allow) OpensPort(udp bool, port uint16) bool {
	return a.UDP == udp && a.Low <= port && port <= a.High
}

func allowError(s, why string) error {
	const want = "want NAME:PORT, ADDRESS:PORT, CIDR:PORT or CIDR:LOW-HIGH, IPv6 in brackets"
	return Invalid("cannot use egress %s: %s: %s", Quote(s), why, want)
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
	host := a.Host
	if !a.Named() {
		host = a.Prefix.String()
		if a.Prefix.IsSingleIP() {
			host = a.Prefix.Addr().String()
		}
		if a.Prefix.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	proto := ""
	switch {
	case a.UDP:
		proto = "udp:"
	case a.NoSNI:
		proto = "nosni:"
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
