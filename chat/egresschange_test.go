package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

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
	if err := json.Unmarshal([]byte(`{"egress_add":["API.example.com.:443"],"egress_remove":null}`), &p); err != nil {
		t.Fatal(err)
	}
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
