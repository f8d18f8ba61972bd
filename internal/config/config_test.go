package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

func TestReadResolvConf(t *testing.T) {
	const none = "[127.0.0.1:53]"
	for _, x := range [][2]string{
		{"", none},
		{"search example.com\n", none},
		{"nameserver 192.0.2.1\n", "[192.0.2.1:53]"},
		{"nameserver 192.0.2.1", "[192.0.2.1:53]"},
		{"nameserver\t2001:db8::1", "[[2001:db8::1]:53]"},
		{"# nameserver 192.0.2.9\n; nameserver 192.0.2.9\nnameserver 127.0.0.53\noptions edns0\n",
			"[127.0.0.53:53]"},
		{"nameserver 192.0.2.1#x\nnameserver 192.0.2.2 ; y\nnameserver \t 192.0.2.3\t\n",
			"[192.0.2.1:53 192.0.2.2:53 192.0.2.3:53]"},
		{"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n",
			"[1.1.1.1:53 1.1.1.2:53 1.1.1.3:53]"},
		{"nameserver fe80::1%eth0\nnameserver 192.0.2.1\n", "[192.0.2.1:53]"},
		{"nameserver fe80::1%eth0\n", none},
		{"nameserver ::ffff:192.0.2.1\n", "[192.0.2.1:53]"},
		{"nameserver 0.0.0.0\nnameserver ff02::1\n", none},
		{" nameserver 192.0.2.1\n", none},
		{"nameservers 192.0.2.1\nnameserver192.0.2.1\n", none},
		{"nameserver ns.example\nnameserver\n", none},
		{"nameserver 192.0.2.1:5353\n", none},
		{"nameserver 192.0.2.1\r\n", "[192.0.2.1:53]"},
		{strings.Repeat("x", 1<<20), none},
	} {
		text, want := x[0], x[1]
		if got := fmt.Sprint(ReadResolvConf(strings.NewReader(text))); got != want {
			t.Errorf("%.200q: %s, want %s", text, got, want)
		}
	}
}

func FuzzReadResolvConf(f *testing.F) {
	f.Add("nameserver 192.0.2.1\nnameserver fe80::1%eth0\n")
	f.Fuzz(func(t *testing.T, text string) {
		list := ReadResolvConf(strings.NewReader(text))
		if len(list) == 0 || len(list) > 3 {
			t.Errorf("%q: %v", text, list)
		}
		for _, s := range list {
			if err := dnsServer(&s, s.String()); err != nil || s.Port() != 53 {
				t.Errorf("%q: %v, %v", text, s, err)
			}
		}
	})
}

// TestProgramsAreFound: chatd's other programs are found beside it, or else where they are
// installed.
func TestProgramsAreFound(t *testing.T) {
	dir := t.TempDir()
	if got, want := programBeside(filepath.Join(dir, "chatd"), "chatd-enforce"), "/usr/local/lib/chatd/chatd-enforce"; got != want {
		t.Errorf("with nothing beside chatd: %s, want %s", got, want)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "chatd-enforce"), nil, 0o755))
	if got, want := programBeside(filepath.Join(dir, "chatd"), "chatd-enforce"), filepath.Join(dir, "chatd-enforce"); got != want {
		t.Errorf("beside chatd: %s, want %s", got, want)
	}
	var cfg Config
	cfg.FindPrograms()
	if filepath.Base(cfg.Enforce) != "chatd-enforce" || filepath.Base(cfg.Shim) != "chatd-shim" {
		t.Errorf("without keys: enforce %q and shim %q", cfg.Enforce, cfg.Shim)
	}
}

// TestRestartNeeded: limits, variables and egress of a profile are applied by a reload, and another
// kind of network is not.
func TestRestartNeeded(t *testing.T) {
	https := must.Get(chat.ParseAllow("api.example.com:443"))(t)
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
