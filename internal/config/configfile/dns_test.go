package configfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

func TestDNSServers(t *testing.T) {
	for _, x := range [][2]string{
		{"[]", "[]"}, {"[192.0.2.1]", "[192.0.2.1:53]"}, {"['192.0.2.1:5353']", "[192.0.2.1:5353]"},
		{"['2001:db8::1', '[2001:db8::2]:54', 127.0.0.53]",
			"[[2001:db8::1]:53 [2001:db8::2]:54 127.0.0.53:53]"},
	} {
		list, want := x[0], x[1]
		cfg, err := load(t, "dns_servers: "+list+"\n")
		if got := fmt.Sprint(cfg.DNSServers); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", list, got, err, want)
		}
	}
	for _, bad := range []string{
		"ns.example", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:", "::ffff:192.0.2.1", "",
		"fe80::1%eth0", "[fe80::1%eth0]:53", "[2001:db8::1]", "0.0.0.0", "::", "ff02::1",
		"2001:db8::1:5353x",
	} {
		want := fmt.Sprintf("chatd.yaml:3: dns_servers[1]: %q: want ADDRESS, ADDRESS:PORT or", bad)
		_, err := load(t, "dns_servers:\n- 192.0.2.1\n- '"+bad+"'\n")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestEgressProgram: the user and the program of chatd-egress are as those of the front and of
// chatd-enforce.
func TestEgressProgram(t *testing.T) {
	cfg, err := load(t, "")
	beside := strings.HasSuffix(cfg.EgressProgram, "/chatd-egress")
	if err != nil || cfg.EgressUser != "chatd-egress" || !beside {
		t.Errorf("without keys: %q, %q, %v", cfg.EgressUser, cfg.EgressProgram, err)
	}
	if _, err := load(t, "egress_user: chatd\n"); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("the user of the front: %v", err)
	}
	cfg, err = load(t, "egress_user: carrier\negress_program: /p/e\n")
	if err != nil || cfg.EgressUser != "carrier" || cfg.EgressProgram != "/p/e" {
		t.Errorf("with keys: %q, %q, %v", cfg.EgressUser, cfg.EgressProgram, err)
	}
}

// TestReloadOfDNSServers: new servers take no restart, another program or user of it does.
func TestReloadOfDNSServers(t *testing.T) {
	was, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"dns_servers: [192.0.2.1]": false, "egress_user: other": true, "egress_program: /p/e": true,
		"profiles: {x: {network: own}}": true,
	} {
		now, err := load(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := config.RestartNeeded(was, now); err != nil || got != want {
			t.Errorf("%s: restart %v, %v", text, got, err)
		}
	}
}

// TestProfileOwn: a profile may have a network of its own, by its key or by a name in egress; an
// entry that is no name has its line in the error.
func TestProfileOwn(t *testing.T) {
	cfg, err := load(t, `profiles:
  a: {network: own}
  b: {egress: ["*.Example.com:443", "203.0.113.5:443"]}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b := cfg.Profiles["a"], cfg.Profiles["b"]
	if a.EffectiveNetwork() != chat.NetworkOwn || b.EffectiveNetwork() != chat.NetworkOwn {
		t.Errorf("%s, %s", a.EffectiveNetwork(), b.EffectiveNetwork())
	}
	if got := fmt.Sprint(b.Egress); got != "[*.example.com:443 203.0.113.5:443]" {
		t.Error(got)
	}
	for _, x := range [][2]string{
		{"    egress:\n    - a.example:443\n    - '*.com:443'\n",
			`chatd.yaml:5: profiles.x.egress[1]: cannot use egress "*.com:443"`},
		{"    egress: ['localhost:80']\n",
			`chatd.yaml:3: profiles.x.egress[0]: cannot use egress "localhost:80"`},
		{"    network: shared\n    egress: ['192.0.2.1:443']\n",
			`profiles.x.network: network shared is no longer there: want own`},
		{"    network: bridge\n", `network "bridge": want own or none`},
	} {
		text, want := x[0], x[1]
		_, err := load(t, "profiles:\n  x:\n"+text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
