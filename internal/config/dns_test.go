package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
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
			if again, err := parseServer(s.String()); err != nil || again != s || s.Port() != 53 {
				t.Errorf("%q: %v, %v", text, s, err)
			}
		}
	})
}

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
		if got, err := RestartNeeded(was, now); err != nil || got != want {
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
