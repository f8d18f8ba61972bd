package resolver

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// reverse answers which name has a made-up address, so that programs print names. The name must
// still be listed. ok is false for any other query.
func (r *Responder) reverse(host string, kind dnsmessage.Type) (answer reply, ok bool) {
	if kind != dnsmessage.TypePTR {
		return reply{}, false
	}
	a, ok := reverseAddr(host)
	if !ok {
		return reply{}, false
	}
	name, ok := r.Book.Host(a)
	if !ok || !r.Lists(name) {
		return reply{}, false
	}
	ptr, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return reply{}, false
	}
	return reply{body: &dnsmessage.PTRResource{PTR: ptr}}, true
}

// reverseAddr reads the name of an address: its bytes backwards below in-addr.arpa (RFC 1035,
// section 3.5), or its hexadecimal digits below ip6.arpa (RFC 3596, section 2.5).
func reverseAddr(host string) (netip.Addr, bool) {
	if rest, v4 := strings.CutSuffix(host, ".in-addr.arpa"); v4 {
		a, err := netip.ParseAddr(strings.Join(backwards(rest), "."))
		return a, err == nil && a.Is4()
	}
	rest, v6 := strings.CutSuffix(host, ".ip6.arpa")
	digits := backwards(rest)
	if !v6 || len(digits) != 32 {
		return netip.Addr{}, false
	}
	b, err := hex.DecodeString(strings.Join(digits, ""))
	if err != nil {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(b) // false unless each label was one digit
}

func backwards(name string) []string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return labels
}
