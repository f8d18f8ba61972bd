package config

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
)

const (
	dnsPort = 53
	// maxServers is MAXNS of resolv.conf(5).
	maxServers = 3
)

// isServer reports whether one server may have the address.
func isServer(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast()
}

// ReadResolvConf returns the first three name servers of a file in the form of resolv.conf(5), and
// 127.0.0.1 where it has none, as the C library does (resolver(3)). Servers with a zone are left
// out, and so is what follows a line that cannot be read.
func ReadResolvConf(r io.Reader) []netip.AddrPort {
	var servers []netip.AddrPort
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(servers) < maxServers {
		// The keyword begins its line; a comment may follow the address (glibc, res_init.c).
		rest, ok := strings.CutPrefix(lines.Text(), "nameserver")
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		rest = strings.TrimLeft(rest, " \t")
		if end := strings.IndexAny(rest, ";# \t"); end >= 0 {
			rest = rest[:end]
		}
		if a, err := netip.ParseAddr(rest); err == nil && isServer(a.Unmap()) {
			servers = append(servers, netip.AddrPortFrom(a.Unmap(), dnsPort))
		}
	}
	if len(servers) == 0 {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		servers = append(servers, netip.AddrPortFrom(loopback, dnsPort))
	}
	return servers
}
