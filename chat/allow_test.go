package chat

import (
	"errors"
	"strings"
	"testing"
)

func mustAllow(t testing.TB, s string) Allow {
	t.Helper()
	a, err := ParseAllow(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAllowNames(t *testing.T) {
	for in, want := range map[string]string{
		"api.example.com:443": "api.example.com:443", "API.Example.com.:443": "api.example.com:443",
		"*.Example.com:443-444":    "*.example.com:443-444",
		"udp:time.example.com:123": "udp:time.example.com:123",
		"tcp:example.com:22":       "example.com:22", "db:5432": "db:5432",
		"xn--bcher-kva.example:80":  "xn--bcher-kva.example:80",
		"localhost.example.com:80":  "localhost.example.com:80",
		"notlocalhost:80":           "notlocalhost:80",
		"nosni:DB.example.com:5432": "nosni:db.example.com:5432",
		"nosni:*.example.com:443":   "nosni:*.example.com:443",
	} {
		a, err := ParseAllow(in)
		if err != nil || a.String() != want || !a.Named() || a.Prefix.IsValid() {
			t.Errorf("ParseAllow(%q) = %+v, %v, want %s", in, a, err, want)
		}
	}
	for in, why := range map[string]string{
		"example.com": "no port", "example.com:": "no port", "example.com:0": "no port",
		"bücher.example:443": "xn--",
		"*:443":              "letters", "*.com:443": "top level", "*.:443": "1 to 253",
		"a.*.b:443":   "letters",
		"*.*.com:443": "letters",
		"*a.com:443":  "letters", "https://example.com:443": "address",
		"user@example.com:443": "letters",
		"example.com/24:443":   "address", "[example.com]:443": "address",
		"udp:tcp:example.com:53": "address", "nosni:tcp:example.com:53": "address",
		"nosni:203.0.113.1:443": "names of TCP", "udp:nosni:example.com:53": "names of TCP",
		"nosni:udp:example.com:53": "address", "nosni:443": "no port",
		"localhost:80": "itself", "LOCALHOST.:80": "itself", "*.localhost:80": "itself",
		"a.localhost:80": "itself",
		"2130706433:80":  "address", "0177.0.0.1:80": "address", "0x7f000001:80": "address",
		"1.2.3:80":     "address",
		"256.1.1.1:80": "address", "127.0.0.1.:80": "address", "*.1.2.3.4:80": "address",
		"a.b.7:80":   "address",
		"tcp:udp:53": "protocol", "tcp:tcp:53": "protocol", "*.udp:53": "protocol",
		"[::ffff:192.0.2.1]:80": "as IPv6", "[::ffff:192.0.2.0/120]:80": "as IPv6",
		strings.Repeat("a", 64) + ".com:80": "63", strings.Repeat("a.", 126) + "bc:80": "253",
	} {
		a, err := ParseAllow(in)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("ParseAllow(%q) = %q, %v, want ErrInvalid with %q", in, a, err, why)
		}
	}
}

func TestMatchesHost(t *testing.T) {
	for _, x := range []struct {
		entry, name string
		want        bool
	}{
		{"x.com:1", "x.com", true}, {"x.com:1", "a.x.com", false}, {"x.com:1", "x.com.evil", false},
		{"x.com:1", "notx.com", false}, {"x.com:1", "com", false}, {"x.com:1", "", false},
		{"*.x.com:1", "a.x.com", true}, {"*.x.com:1", "a.b.x.com", true},
		{"*.x.com:1", "x.com", false},
		{"*.x.com:1", ".x.com", false}, {"*.x.com:1", "notx.com", false},
		{"*.x.com:1", "a.x.com.evil", false},
		{"*.x.com:1", "a.notx.com", false}, {"192.0.2.1:1", "", false},
		{"192.0.2.1:1", "192.0.2.1", false},
	} {
		if got := mustAllow(t, x.entry).MatchesHost(x.name); got != x.want {
			t.Errorf("%s matches %q: %v", x.entry, x.name, got)
		}
	}
}

// FuzzAllow: an entry is written as it is read, and a name matches only what it says.
func FuzzAllow(f *testing.F) {
	for _, s := range []string{"api.example.com:443", "*.Example.com.:1-2", "udp:a.b:53",
		"tcp:udp:1", "203.0.113.5:443", "[2001:db8::/32]:443", "udp:10.0.0.0/8:1-2"} {
		f.Add(s, "a.example.com")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		a, err := ParseAllow(s)
		if err != nil {
			return
		}
		if again, err := ParseAllow(a.String()); err != nil || again != a {
			t.Errorf("%q reads as %v, which reads as %v, %v", s, a, again, err)
		}
		if strings.ContainsAny(a.String(), " \t\n\"'") || a.Low == 0 || a.Low > a.High {
			t.Errorf("%q reads as %v", s, a)
		}
		if a.Named() == a.Prefix.IsValid() {
			t.Errorf("%q reads as %+v: want a name or an address", s, a)
		}
		below, star := strings.CutPrefix(a.Host, "*.")
		if _, err := CheckHost(below); a.Named() && err != nil {
			t.Errorf("%q reads as %v: %v", s, a, err)
		}
		host, err := CheckHost(name)
		if err != nil || !a.MatchesHost(host) {
			return
		}
		if !star && host != a.Host || star && !strings.HasSuffix(host, "."+below) {
			t.Errorf("%v matches %q", a, host)
		}
	})
}
