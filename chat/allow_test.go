package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

func mustAllow(t testing.TB, s string) Allow {
	t.Helper()
	a := must.Get(ParseAllow(s))(t)
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

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		may, add string
		want     bool
	}{
		{"api.example.com:443", "api.example.com:443", true},
		{"api.example.com:443", "api.example.com:80", false},
		{"api.example.com:1-1000", "api.example.com:80-443", true},
		{"api.example.com:80-443", "api.example.com:80-444", false},
		{"api.example.com:443", "udp:api.example.com:443", false},
		{"*.example.com:443", "api.example.com:443", true},
		{"*.example.com:443", "*.api.example.com:443", true},
		{"*.example.com:443", "*.example.com:443", true},
		{"*.api.example.com:443", "*.example.com:443", false},
		{"*.example.com:443", "example.com:443", false},
		{"*.example.com:443", "notexample.com:443", false},
		{"api.example.com:443", "*.example.com:443", false},
		{"nosni:*.example.com:443", "api.example.com:443", true},
		{"nosni:*.example.com:443", "nosni:api.example.com:443", true},
		{"*.example.com:443", "nosni:api.example.com:443", false},
		{"192.0.2.0/24:443", "192.0.2.7:443", true},
		{"192.0.2.0/24:443", "192.0.2.0/25:443", true},
		{"192.0.2.0/24:443", "192.0.0.0/16:443", false},
		{"192.0.2.0/24:443", "api.example.com:443", false},
		{"*.example.com:443", "192.0.2.7:443", false},
		{"10.0.0.0/8:80", "10.1.0.0/16:80", true},
		{"0.0.0.0/0:80", "203.0.113.0/24:80", true},
		{"0.0.0.0/0:80", "0.0.0.0/0:80", true},
		{"0.0.0.0/0:80", "10.0.0.0/8:80", false},
		{"0.0.0.0/0:80", "8.0.0.0/6:80", false},
		{"0.0.0.0/0:80", "169.254.169.254:80", false},
		{"169.254.0.0/16:80", "169.254.169.254:80", false},
		{"169.254.169.254:80", "169.254.169.254:80", true},
		{"[::/0]:80", "[2001:db8::1]:80", true},
		{"[::/0]:80", "[fd00::1]:80", false},
		{"[::/0]:80", "192.0.2.1:80", false},
	} {
		if got := allows(t, c.may)[0].covers(allows(t, c.add)[0]); got != c.want {
			t.Errorf("%s covers %s: %v", c.may, c.add, got)
		}
	}
}

func TestWith(t *testing.T) {
	p := Profile{Name: "p", Limits: DefaultLimits(), Egress: allows(t, "a.example.com:443",
		"192.0.2.1:80"),
		EgressMayAdd: allows(t, "*.example.com:443")}
	if err := p.Validate(); err != nil || p.EffectiveNetwork() != NetworkOwn {
		t.Fatal(err, p.EffectiveNetwork())
	}
	change := EgressChange{Add: allows(t, "b.example.com:443", "evil.example.net:443",
		"a.example.com:443"),
		Remove: allows(t, "192.0.2.1:80", "192.0.2.2:80")}
	if got := fmt.Sprint(p.With(change).Egress); got != "[a.example.com:443 b.example.com:443]" {
		t.Errorf("%s", got)
	}
	none := p.With(EgressChange{Remove: p.Egress})
	if len(none.Egress) != 0 || none.EffectiveNetwork() != NetworkOwn {
		t.Errorf("%v, %s: it may get some again", none.Egress, none.EffectiveNetwork())
	}
	if len(p.Egress) != 2 {
		t.Errorf("the profile has changed: %v", p.Egress)
	}
}

func TestCheckEgress(t *testing.T) {
	p := Profile{Name: "p", Egress: allows(t, "a.example.com:443"), EgressMayAdd: allows(t,
		"*.example.com:443")}
	none := Profile{Name: "s"}
	for name, c := range map[string]struct {
		p    Profile
		c    EgressChange
		want error
	}{
		"nothing":       {p, EgressChange{}, nil},
		"nothing, none": {none, EgressChange{}, nil},
		"none":          {none, EgressChange{Add: p.Egress}, ErrInvalid},
		"admitted": {p, EgressChange{Add: allows(t, "b.example.com:443"),
			Remove: p.Egress}, nil},
		"not admitted": {p, EgressChange{Add: allows(t, "b.example.com:444")}, ErrDenied},
		"not listed":   {p, EgressChange{Remove: allows(t, "b.example.com:443")}, ErrInvalid},
		"too many":     {p, EgressChange{Add: make([]Allow, MaxEgressChange+1)}, ErrInvalid},
	} {
		if err := c.p.CheckEgress(c.c); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestOnlyOutside: an entry opens an address of this host only if the profile lists it, or an entry
// that is not wide admits it.
func TestOnlyOutside(t *testing.T) {
	p := Profile{Name: "p", Egress: allows(t, "203.0.113.9:80")}
	p.EgressMayAdd = allows(t, "0.0.0.0/0:1-65535", "203.0.113.0/28:80", "198.51.100.7:443",
		"[2000::/3]:443", "*.example.com:443", "[2001:db8::1]:443")
	for text, want := range map[string]bool{
		"203.0.113.200:80": true, "203.0.113.1:81": true, "203.0.113.128/25:80": true,
		"0.0.0.0/0:443":   true,
		"198.51.100.7:80": true, "[2001:db8::2]:443": true,
		"203.0.113.1:80": false, "203.0.113.9:80": false, "198.51.100.7:443": false,
		"203.0.113.0/29:80": false, "[2001:db8::1]:443": false, "a.example.com:443": false,
	} {
		c := EgressChange{Add: allows(t, text)}
		admitted := p.mayAdd(c.Add[0]) || slices.Contains(p.Egress, c.Add[0])
		if got := len(p.OnlyOutside(c)) == 1; got != want || !admitted {
			t.Errorf("%s: only outside %t, want %t", text, got, want)
		}
	}
}

func TestPatchEgress(t *testing.T) {
	var p Patch
	must.Do(t, json.Unmarshal([]byte(`{"egress_add":["API.example.com.:443"],"egress_remove":null}`), &p))
	before := EgressChange{Add: allows(t, "192.0.2.1:80"), Remove: allows(t, "192.0.2.2:80")}
	after := p.ApplyEgress(before)
	if fmt.Sprint(after) != "{[api.example.com:443] []}" || !p.ChangesEgress() ||
		p.Validate() != nil {
		t.Errorf("%v, %v", after, p.Validate())
	}
	b, err := json.Marshal(p)
	if err != nil || string(b) != `{"egress_add":["api.example.com:443"],"egress_remove":null}` {
		t.Errorf("%s, %v", b, err)
	}
	if got := (Patch{Labels: map[string]*string{}}).ApplyEgress(before); !got.Equal(before) {
		t.Errorf("a patch of labels changes %v", got)
	}
	for _, text := range []string{`{"egress_add":"x:1"}`, `{"egress_add":["x"]}`, `{"egress_add":[7]}`, `{"egress":[]}`, `{"Egress_Add":[]}`} {
		if err := json.Unmarshal([]byte(text), &p); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	long := `{"egress_add":[` + strings.Repeat(`"192.0.2.1:80",`, MaxEgressChange) + `"192.0.2.1:80"]}`
	if err := json.Unmarshal([]byte(long), &p); err != nil || !errors.Is(p.Validate(), ErrInvalid) {
		t.Errorf("%v, %v", err, p.Validate())
	}
}

func TestUnlikeEgress(t *testing.T) {
	has := EgressChange{Add: allows(t, "192.0.2.1:80")}
	s := Spec{EgressAdd: has.Add, EgressRemove: allows(t, "192.0.2.2:80")}
	if got := s.Unlike(nil, has); !slices.Equal(got, []string{"egress_remove"}) {
		t.Errorf("%v", got)
	}
}

// TestEgressOpen: of many connections the oldest and the newest are there, by age, and the count
// has all.
func TestEgressOpen(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for _, n := range []int{0, 1, MaxEgressOpen, MaxEgressOpen + 1, 640} {
		var all []EgressConnection
		for i := range n {
			i = (i*7 + 3) % n // in another order
			all = append(all, EgressConnection{Since: at.Add(time.Duration(i) * time.Second),
				Host: fmt.Sprint("h", i), Port: 443})
		}
		o := NewEgressOpen(all)
		k := len(o.Connections)
		if o.Count != n || k != min(n, MaxEgressOpen) || o.Validate() != nil ||
			o.Connections == nil {
			t.Fatalf("%d connections of %d, %v", k, n, o.Validate())
		}
		if n == 640 && (o.Connections[0].Host != "h0" || o.Connections[49].Host != "h49" ||
			o.Connections[50].Host != "h590" || o.Connections[99].Host != "h639") {
			t.Errorf("%+v", o.Connections)
		}
	}
}

func TestEgressOpenRefused(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	one := func(f func(*EgressConnection)) EgressOpen {
		c := EgressConnection{Since: at, Host: "a.example", Port: 443}
		f(&c)
		return EgressOpen{Count: 1, Connections: []EgressConnection{c}}
	}
	must.Do(t, one(func(*EgressConnection) {}).Validate())
	for name, o := range map[string]EgressOpen{
		"fewer than there are": {Connections: make([]EgressConnection, 1)},
		"too many": {Count: 1000,
			Connections: make([]EgressConnection, MaxEgressOpen+1)},
		"a count below 0":     {Count: -1},
		"what it says itself": {Unknown: "x"},
		"no time":             one(func(c *EgressConnection) { c.Since = time.Time{} }),
		"a host that draws":   one(func(c *EgressConnection) { c.Host = "a\x1b[2J" }),
		"no address":          one(func(c *EgressConnection) { c.Host, c.Address = "", "x" }),
		"bytes below 0":       one(func(c *EgressConnection) { c.Sent = -1 }),
	} {
		if o.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
