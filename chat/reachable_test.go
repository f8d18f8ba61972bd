package chat

import (
	"net/netip"
	"testing"
)

func allows(t testing.TB, list ...string) (all []Allow) {
	t.Helper()
	for _, s := range list {
		all = append(all, mustAllow(t, s))
	}
	return all
}

func TestPublic(t *testing.T) {
	for s, want := range map[string]bool{
		"93.184.215.14": true, "2606:2800:220:1::1": true, "172.15.255.255": true,
		"172.32.0.0":     true,
		"100.63.255.255": true, "100.128.0.0": true, "223.255.255.255": true, "8.8.8.8": true,
		"168.63.129.16": false, "169.254.169.254": false, "100.100.100.200": false,
		"fd00:ec2::254": false,
		"0.0.0.0":       false, "10.1.2.3": false, "127.0.0.1": false, "172.16.0.0": false,
		"172.31.255.255": false,
		"192.168.1.1":    false, "198.18.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::127.0.0.1": false, "::ffff:8.8.8.8": false,
		"64:ff9b::808:808": false,
		"2002:808:808::1":  false, "2001::1": false, "fc00::1": false, "fe80::1": false,
		"ff02::1":                 false,
		"2606:2800:220:1::1%eth0": false,
	} {
		if got := Public(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s is public: %v", s, got)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestWide(t *testing.T) {
	for s, want := range map[string]bool{
		"0.0.0.0/0:1": true, "0.0.0.0/1:1": true, "8.0.0.0/6:1": true, "[::/0]:1": true,
		"[2000::/3]:1": true,
		"10.0.0.0/8:1": false, "10.0.0.0/9:1": false, "203.0.113.0/24:1": false,
		"10.0.0.5:1":       false,
		"169.254.0.0/16:1": false, "[fc00::/7]:1": false, "[2001:db8::/32]:1": false,
		"a.example:1": false,
	} {
		if got := mustAllow(t, s).Wide(); got != want {
			t.Errorf("%s is wide: %v", s, got)
		}
	}
}

func TestReachableAddr(t *testing.T) {
	narrow := []string{"10.0.0.0/8:80-81", "169.254.0.0/16:80", "100.64.0.0/10:80", "[fd00::/8]:80"}
	wide := []string{"0.0.0.0/0:443", "[::/0]:443"}
	for _, x := range []struct {
		list []string
		udp  bool
		to   string
		by   string // empty for none
	}{
		{narrow, false, "10.1.2.3:80", "10.0.0.0/8:80-81"},
		{narrow, false, "10.1.2.3:81", "10.0.0.0/8:80-81"},
		{narrow, false, "10.1.2.3:82", ""}, {narrow, true, "10.1.2.3:80", ""},
		{narrow, false, "11.0.0.1:80", ""},
		{narrow, false, "[::ffff:10.1.2.3]:80", ""},
		{narrow, false, "[fd12::1]:80", "[fd00::/8]:80"},
		{narrow, false, "[fd12::1%eth0]:80", ""},
		{narrow, false, "169.254.1.1:80", "169.254.0.0/16:80"},
		{narrow, false, "169.254.169.254:80", ""},
		{narrow, false, "100.100.100.200:80", ""}, {narrow, false, "[fd00:ec2::254]:80", ""},
		{append(narrow, "169.254.169.254:80"), false, "169.254.169.254:80", "169.254.169.254:80"},
		{[]string{"169.254.169.254:80"}, false, "169.254.169.254:81", ""},
		{[]string{"169.254.169.254/32:80"}, false, "169.254.169.254:80", "169.254.169.254:80"},
		{[]string{"[fd00:ec2::254]:80"}, false, "[fd00:ec2::254]:80", "[fd00:ec2::254]:80"},
		{wide, false, "8.8.8.8:443", "0.0.0.0/0:443"}, {wide, false, "8.8.8.8:80", ""},
		{wide, false, "10.0.0.1:443", ""}, {wide, false, "127.0.0.1:443", ""},
		{wide, false, "168.63.129.16:443", ""},
		{wide, false, "[2606:2800::1]:443", "[::/0]:443"}, {wide, false, "[fe80::1]:443", ""},
		{wide, false, "[::1]:443", ""}, {wide, false, "[::ffff:8.8.8.8]:443", ""},
		{append([]string{"10.0.0.1:443"}, wide...), false, "10.0.0.1:443", "10.0.0.1:443"},
		{append(wide, "10.0.0.0/24:443"), false, "10.0.0.1:443", "10.0.0.0/24:443"},
		{[]string{"udp:192.0.2.1:53"}, true, "192.0.2.1:53", "udp:192.0.2.1:53"},
		{[]string{"udp:192.0.2.1:53"}, false, "192.0.2.1:53", ""},
		{[]string{"a.example:443", "*.a.example:443"}, false, "8.8.8.8:443", ""},
		{nil, false, "8.8.8.8:443", ""},
	} {
		by, ok := ReachableAddr(allows(t, x.list...), x.udp, netip.MustParseAddrPort(x.to))
		if got := map[bool]string{true: by.String()}[ok]; got != x.by {
			t.Errorf("%q, udp %v, %s: by %q, want %q", x.list, x.udp, x.to, got, x.by)
		}
	}
}

func TestReachableHost(t *testing.T) {
	list := allows(t, "0.0.0.0/0:443", "api.example.com:443", "*.example.com:443",
		"*.example.com:8000-8001", "udp:time.example.com:123")
	for _, x := range []struct {
		udp  bool
		host string
		port uint16
		by   string
	}{
		{false, "api.example.com", 443, "api.example.com:443"},
		{false, "b.example.com", 443, "*.example.com:443"},
		{false, "api.example.com", 8001, "*.example.com:8000-8001"},
		{false, "api.example.com", 8002, ""},
		{false, "example.com", 443, ""}, {false, "api.example.com.evil", 443, ""},
		{true, "api.example.com", 443, ""},
		{true, "time.example.com", 123, "udp:time.example.com:123"},
		{false, "time.example.com", 123, ""},
		{false, "", 443, ""}, {false, "other.org", 443, ""},
	} {
		by, ok := ReachableHost(list, x.udp, x.host, x.port)
		if got := map[bool]string{true: by.String()}[ok]; got != x.by {
			t.Errorf("udp %v, %s:%d: by %q, want %q", x.udp, x.host, x.port, got, x.by)
		}
	}
}

// FuzzReachableAddr: no list without an entry of exactly that address opens a metadata address, and
// no wide entry anything that is not public.
func FuzzReachableAddr(f *testing.F) {
	f.Add("169.254.0.0/16:80", "169.254.169.254:80")
	f.Add("[::/0]:80", "[fe80::1]:80")
	f.Fuzz(func(t *testing.T, entry, dest string) {
		a, err := ParseAllow(entry)
		to, bad := netip.ParseAddrPort(dest)
		if err != nil || bad != nil {
			return
		}
		by, ok := ReachableAddr([]Allow{a}, a.UDP, to)
		if !ok {
			return
		}
		inside := by == a && a.Prefix.Contains(to.Addr()) && a.OpensPort(a.UDP, to.Port())
		if !inside || !a.Prefix.IsSingleIP() && a.Wide() && !Public(to.Addr()) {
			t.Errorf("%v opens %v", a, to)
		}
		for _, m := range MetadataAddrs() {
			if to.Addr() == m && !a.Prefix.IsSingleIP() {
				t.Errorf("%v opens %v", a, to)
			}
		}
	})
}

// TestListsAreCopies: a caller that changes a list changes nobody else's.
func TestListsAreCopies(t *testing.T) {
	MetadataAddrs()[0], SpecialPrefixes()[0] = netip.Addr{}, netip.Prefix{}
	if !MetadataAddrs()[0].IsValid() || !SpecialPrefixes()[0].IsValid() {
		t.Error("a caller changed the lists")
	}
}
