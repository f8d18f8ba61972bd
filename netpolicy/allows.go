package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/chatd/chatd/chat"
)

// policyRules is the chain of one policy: sockets of another group refused, then what it names
// exactly, then the metadata addresses refused, then what it names narrowly, then the private
// ranges refused, then what it names widely. The end of the chain refuses.
func policyRules(f family, chain string, p Policy) []string {
	exact, narrow, wide := sortAllows(f, p)
	var rules []string
	if p.GID != 0 {
		const other = "-A %s -m owner ! --gid-owner %d -j CHATD-NO"
		rules = append(rules, fmt.Sprintf(other, chain, p.GID))
	}
	allow := func(list []chat.Allow, outside bool) {
		for _, a := range list {
			to := fmt.Sprintf("-d %s %s", a.Prefix, ports(a))
			if outside || slices.Contains(p.Outside, a) {
				to = "! -o lo " + to
			}
			rules = append(rules, fmt.Sprintf("-A %s %s -j ACCEPT", chain, to))
		}
	}
	allow(exact, false)
	if len(narrow)+len(wide) > 0 {
		rules = append(rules, "-A "+chain+" -j CHATD-META")
	}
	allow(narrow, false)
	if len(wide) > 0 {
		rules = append(rules, "-A "+chain+" -j CHATD-DENY")
	}
	// Every address of this host is reached over lo: a wide allow means the internet, not the
	// services of this host.
	allow(wide, true)
	return rules
}

func ports(a chat.Allow) string {
	proto := "tcp"
	if a.UDP {
		proto = "udp"
	}
	if a.Low == a.High {
		return fmt.Sprintf("-p %s -m %s --dport %d", proto, proto, a.Low)
	}
	return fmt.Sprintf("-p %s -m %s --dport %d:%d", proto, proto, a.Low, a.High)
}

// everywhere is what the rules know of a name: it has some address of the family.
func (f family) everywhere() netip.Prefix {
	if f.name == ipv4.name {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// sortAllows splits what a policy opens in one family: a single address is exact, a name or a
// prefix that is [chat.Allow.Wide] is wide, and the rest is narrow.
func sortAllows(f family, p Policy) (exact, narrow, wide []chat.Allow) {
	v4 := f.name == ipv4.name
	for _, a := range p.Egress {
		if a.Named() {
			a.Host, a.NoSNI, a.Prefix = "", false, f.everywhere()
		}
		switch {
		case a.Prefix.Addr().Is4() != v4:
		case a.Prefix.IsSingleIP():
			exact = append(exact, a)
		case a.Wide():
			if !slices.Contains(wide, a) { // many names have the same ports
				wide = append(wide, a)
			}
		default:
			narrow = append(narrow, a)
		}
	}
	return exact, narrow, wide
}
