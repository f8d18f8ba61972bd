package config

import (
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestRestartNeeded: limits, variables and egress of a profile are applied by a reload, and another
// kind of network is not.
func TestRestartNeeded(t *testing.T) {
	https, err := chat.ParseAllow("api.example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit func(*chat.Profile)
		want bool
	}{
		"nothing":        {func(*chat.Profile) {}, false},
		"limits":         {func(p *chat.Profile) { p.Limits.PidsMax++ }, false},
		"env":            {func(p *chat.Profile) { p.Env = map[string]string{"A": "1"} }, false},
		"guard":          {func(p *chat.Profile) { p.Guard.Preset = "off" }, false},
		"egress":         {func(p *chat.Profile) { p.Egress = nil }, false},
		"a network more": {func(p *chat.Profile) { p.Network, p.Egress = "", []chat.Allow{https} }, true},
		"commands":       {func(p *chat.Profile) { p.Commands = []string{"*"} }, true},
	} {
		was := Config{Profiles: map[string]chat.Profile{"p": {Name: "p", Limits: chat.DefaultLimits()}}}
		if name == "egress" {
			was.Profiles["p"] = chat.Profile{Network: chat.NetworkOwn, Egress: []chat.Allow{https}}
		}
		p := was.Profiles["p"]
		c.edit(&p)
		now := Config{Profiles: map[string]chat.Profile{"p": p}}
		if got, err := RestartNeeded(was, now); err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}
