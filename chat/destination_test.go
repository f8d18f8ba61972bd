package chat

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseDestination(t *testing.T) {
	for in, want := range map[string]Destination{
		"api.Example.com.:443":    {"api.Example.com.", 443, false},
		"udp:192.0.2.1:53":        {"192.0.2.1", 53, true},
		"[2001:db8::1]:65535":     {"2001:db8::1", 65535, false},
		"udp:[::ffff:10.0.0.1]:1": {"::ffff:10.0.0.1", 1, true},
		"localhost:80":            {"localhost", 80, false},
	} {
		if got, err := ParseDestination(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"api.Example.com.:443": "api.example.com:443", "udp:192.0.2.1:53": "udp:192.0.2.1:53",
		"[2001:DB8::0:1]:443": "[2001:db8::1]:443", "udp:[::ffff:10.0.0.1]:1": "udp:10.0.0.1:1",
	} {
		if got, err := ParseDestination(in); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, bad := range []string{
		"", ":", "a.example", "a.example:", "a.example:0", "a.example:65536", "a.example:1-2",
		":443",
		"2001:db8::1", "2001:db8::1:443", "[192.0.2.1]:1", "[a.example]:1", "[2001:db8::1:1",
		"2001:db8::1]:1",
		"[fe80::1%eth0]:1", "*.example.com:443", "10.0.0.0/8:443", "bücher.example:1", "1.2.3:80",
		"a b:1",
		"https://a.example:443", "tcp:a.example:443",
	} {
		if got, err := ParseDestination(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v, %v, want ErrInvalid", bad, got, err)
		}
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add("udp:[2001:db8::1]:443")
	f.Add("API.example.com.:1")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDestination(s)
		if err != nil {
			return
		}
		again, err := ParseDestination(d.String())
		if err != nil || again.String() != d.String() || (d.Name() == "") != d.Addr().IsValid() {
			t.Errorf("%q is %+v, which is %+v, %v", s, d, again, err)
		}
	})
}

func TestQuestionValidate(t *testing.T) {
	for _, x := range []struct {
		name string
		q    Question
		ok   bool
	}{
		{"a path", Question{Path: "a", Op: "read"}, true},
		{"a command", Question{Command: "ls"}, true},
		{"a name", Question{Host: "a.example", Port: 443}, true},
		{"an address", Question{Host: "2001:db8::1", Port: 53, UDP: true}, true},
		{"nothing", Question{}, false}, {"a path without op", Question{Path: "a"}, false},
		{"path and command", Question{Path: "a", Op: "read", Command: "ls"}, false},
		{"path and host", Question{Path: "a", Op: "read", Host: "a.example", Port: 443}, false},
		{"command and host", Question{Command: "ls", Host: "a.example", Port: 443}, false},
		{"a host with op", Question{Host: "a.example", Port: 443, Op: "read"}, false},
		{"a command with op", Question{Command: "ls", Op: "read"}, false},
		{"a command with a port", Question{Command: "ls", Port: 443}, false},
		{"a path with udp", Question{Path: "a", Op: "read", UDP: true}, false},
		{"a port alone", Question{Port: 443}, false},
		{"a host without port", Question{Host: "a.example"}, false},
		{"a pattern", Question{Host: "*.example.com", Port: 443}, false},
		{"a host with a port inside", Question{Host: "a.example:1", Port: 443}, false},
		{"brackets", Question{Host: "[::1]", Port: 443}, false},
		{"a zone", Question{Host: "fe80::1%eth0", Port: 443}, false},
	} {
		err := x.q.Validate()
		if x.ok != (err == nil) || !x.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}

func TestCheckHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"example.com": "example.com", "API.Example.COM": "api.example.com",
		"example.com.": "example.com",
		"localhost":    "localhost", "db": "db", "_sip.example.com": "_sip.example.com",
		"a-b.c":                 "a-b.c",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "1and1.com": "1and1.com",
		"7.eleven": "7.eleven",
		"0xyz":     "0xyz", "a.0xg": "a.0xg", long + ".com": long + ".com",
	} {
		if got, err := CheckHost(in); err != nil || got != want {
			t.Errorf("CheckHost(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "1 to 253", ".": "1 to 253", "a..b": "label", ".a": "label", "a.b..": "label",
		"-a.com": "hyphen",
		"a-.com": "hyphen", long + "a.com": "63", strings.Repeat("a.", 126) + "bc": "253",
		"bücher.example": "xn--", "\u212aelvin.com": "xn--", "a b": "letters", "a\n.com": "letters",
		"*.com": "letters", "*": "letters", "a/b": "letters", "a:b": "letters", "a%b": "letters",
		"\xff":      "xn--",
		"127.0.0.1": "address", "127.0.0.1.": "address", "2130706433": "address",
		"0177.0.0.1": "address",
		"0x7f000001": "address", "0X7F.1": "address", "1.2.3": "address", "a.1": "address",
		"a.0x1":     "address",
		"256.1.1.1": "address",
	} {
		if got, err := CheckHost(in); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("CheckHost(%q) = %q, %v, want an error with %q", in, got, err, why)
		}
	}
}

// FuzzCheckHost: a canonical name is its own canonical name, and no more than letters that a packet
// of DNS and a line of a log may have.
func FuzzCheckHost(f *testing.F) {
	f.Add("API.Example.COM.")
	f.Add("\u212aelvin.com")
	f.Fuzz(func(t *testing.T, s string) {
		name, err := CheckHost(s)
		if err != nil {
			return
		}
		again, err := CheckHost(name)
		if err != nil || again != name || !strings.EqualFold(name, strings.TrimSuffix(s, ".")) {
			t.Errorf("%q is %q, which is %q, %v", s, name, again, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 {
			t.Errorf("%q is %q", s, name)
		}
	})
}

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
