package chat

import (
	"net/netip"
	"slices"
)

// MetadataAddrs are those of the metadata services of AWS, GCP, Azure, Oracle, Alibaba and their
// like, which hand out credentials. Only an [Allow] of exactly that address opens one.
func MetadataAddrs() []netip.Addr { return slices.Clone(metadata) }

// SpecialPrefixes are the networks that are not the internet (IANA's registries of special-purpose
// addresses, RFC 6890). A wide [Allow], such as 0.0.0.0/0, does not open them, nor does a name.
func SpecialPrefixes() []netip.Prefix { return slices.Clone(special) }

var metadata = parsed(netip.MustParseAddr, "169.254.169.254", "169.254.170.2", "100.100.100.200",
	"168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")

var special = parsed(netip.MustParsePrefix, "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10",
	"127.0.0.0/8",
	"169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "::/96", "::ffff:0.0.0.0/96", "64:ff9b::/96",
	"64:ff9b:1::/48", "2002::/16", "2001::/32", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")

func parsed[T any](parse func(string) T, texts ...string) (all []T) {
	for _, text := range texts {
		all = append(all, parse(text))
	}
	return all
}

// NamePrefixes are the networks, IPv4 and IPv6, in which names have their addresses in a session
// with [NetworkOwn]. 198.18.0.0/15 is for measuring devices (RFC 2544), fd63:6861:7464::/48 unique
// local (RFC 4193); nothing that a chat needs to reach has an address there.
func NamePrefixes() (v4, v6 netip.Prefix) { return names4, names6 }

var (
	names4 = netip.MustParsePrefix("198.18.0.0/15")
	names6 = netip.MustParsePrefix("fd63:6861:7464::/48")
)

// isInside reports whether all addresses of a are loopback or of names, in a session with
// [NetworkOwn].
func (a Allow) isInside() bool {
	within := func(p netip.Prefix) bool {
		return a.Prefix.Bits() >= p.Bits() && p.Contains(a.Prefix.Addr())
	}
	return !a.Named() && (a.Prefix.Addr().IsLoopback() || within(names4) || within(names6))
}

// Public reports whether an address is of the internet: neither special nor of a metadata service.
func Public(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !slices.Contains(metadata, a) &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Wide reports whether a takes in a special network without being meant for it: 0.0.0.0/0 is wide,
// 10.0.0.0/8 and 203.0.113.0/24 are not.
func (a Allow) Wide() bool {
	return !a.Named() && slices.ContainsFunc(special, func(s netip.Prefix) bool {
		return a.Prefix.Bits() < s.Bits() && a.Prefix.Overlaps(s)
	})
}

// ReachableAddr returns the first destination of the list that opens an address, as the packet
// rules decide it: a metadata address needs an entry of its own, and a wide entry opens only
// public addresses.
func ReachableAddr(list []Allow, udp bool, to netip.AddrPort) (by Allow, ok bool) {
	addr := to.Addr()
	for _, a := range list {
		switch {
		case a.Named() || !a.OpensPort(udp, to.Port()) || !a.Prefix.Contains(addr):
		case a.Prefix.IsSingleIP(), !slices.Contains(metadata, addr) && (!a.Wide() || Public(addr)):
			return a, true
		}
	}
	return Allow{}, false
}

// ReachableHost returns the first destination of the list that opens a port of a name, which has
// the form of [CheckHost].
func ReachableHost(list []Allow, udp bool, host string, port uint16) (by Allow, ok bool) {
	for _, a := range list {
		if a.OpensPort(udp, port) && a.MatchesHost(host) {
			return a, true
		}
	}
	return Allow{}, false
}
