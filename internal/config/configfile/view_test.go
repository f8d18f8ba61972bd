package configfile

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/test/must"
)

// Every error about a path that a profile opens names file, line and key.
func TestViewErrors(t *testing.T) {
	const rule = "profiles:\n  x:\n    expose_paths:\n      - source: /data/x\n        target: /opt/x\n        mode: ro\n"
	for text, want := range map[string]string{
		rule + "      - source: y\n        mode: ro\n":                                  `chatd.yaml:7: profiles.x.expose_paths[1].source: "y" is relative: want an absolute path`,
		rule + "      - source: /data/y\n        mode: w\n":                             `chatd.yaml:8: profiles.x.expose_paths[1].mode: "w": want ro or rw`,
		rule + "      - source: /data/y\n":                                              `profiles.x.expose_paths[1].mode: "": want ro or rw`,
		rule + "      - target: /opt/y\n        mode: ro\n":                             `expose_paths[1].source: it is empty: want an absolute path`,
		rule + "      - {source: /data/y, target: /opt/x, mode: rw}\n":                  `chatd.yaml:7: profiles.x.expose_paths[1]: target "/opt/x" has a rule already, expose_paths[0]`,
		rule + "      - {source: /data/y, target: /proc/x, mode: ro}\n":                 `chatd.yaml:7: profiles.x.expose_paths[1].target: "/proc/x" would cover chatd's own /proc`,
		rule + "      - {source: /data/y, targt: /opt/y, mode: ro}\n":                   `chatd.yaml:7: unknown key "targt"`,
		"profiles:\n  x:\n    expose_paths: /data/x\n":                                  `chatd.yaml:3:`,
		"profiles:\n  x:\n    expose_paths: [/data/x]\n":                                `chatd.yaml:3:`,
		"expose_paths:\n  - {source: /data, mode: ro}\n  - {source: /etc, mode: ro}\n":  `chatd.yaml:3: expose_paths[1].source: "/etc" may not be exposed: /etc/shadow: it holds passwords`,
		"profiles:\n  x:\n    allow_read_paths: ['^/data/x$', 'x']\n":                   `chatd.yaml:3: profiles.x.allow_read_paths[1]: "x" has no literal beginning: want ^/DIRECTORY/ in front`,
		"profiles:\n  x:\n    allow_read_paths:\n     - '^/data/x$'\n     - '^/data/('": `chatd.yaml:5: profiles.x.allow_read_paths[1]: "^/data/(": error parsing regexp`,
		"profiles:\n  x:\n    allow_write_paths: ['^/proc/x$']\n":                       `chatd.yaml:3: profiles.x.allow_write_paths[0]: "^/proc/x$": /proc and /sys are for reading`,
		"profiles:\n  x:\n    allow_read_paths: ['^/proc/.*']\n":                        `chatd.yaml:3: profiles.x.allow_read_paths[0]: "^/proc/.*": below /proc a grant is one file`,
		"profiles:\n  x:\n    allow_read_outside_workspace: yes\n":                      `chatd.yaml:3: profiles.x.allow_read_outside_workspace: "yes": want true or false`,
	} {
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "cannot ") || !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
}

// TestViewMerges: a profile's own rules override those for all profiles, and both samples of
// PicoClaw's pages load.
func TestViewMerges(t *testing.T) {
	cfg, err := load(t, `expose_paths:
  - {source: /opt/toolchains/go, mode: ro}
  - {source: /data/shared-assets, target: /opt/picoclaw-instance-a/workspace/assets, mode: rw}
profiles:
  x:
    expose_paths: [{source: /data/other, target: /opt/toolchains/go/, mode: rw}]
    allow_read_paths: ["^/etc/hosts$", "^/proc/cpuinfo$", "^/sys/class/net/[^/]+/address$"]
    allow_write_paths: ["^/tmp/picoclaw-.*\\.txt$"]
    allow_read_outside_workspace: true
`)
	if err != nil {
		t.Fatal(err)
	}
	assets := chat.Expose{Source: "/data/shared-assets", Target: "/opt/picoclaw-instance-a/workspace/assets", Mode: chat.ReadWrite}
	x := cfg.Profiles["x"]
	if want := []chat.Expose{{Source: "/data/other", Target: "/opt/toolchains/go", Mode: chat.ReadWrite}, assets}; !reflect.DeepEqual(x.ExposePaths, want) {
		t.Errorf("x: %+v", x.ExposePaths)
	}
	if want := []chat.Expose{{Source: "/opt/toolchains/go", Target: "/opt/toolchains/go", Mode: chat.ReadOnly}, assets}; !reflect.DeepEqual(cfg.Profiles["default"].ExposePaths, want) {
		t.Errorf("default: %+v", cfg.Profiles["default"].ExposePaths)
	}
	if !x.AllowReadOutsideWorkspace || len(x.AllowReadPaths) != 3 || len(x.AllowWritePaths) != 1 || cfg.Profiles["default"].AllowReadOutsideWorkspace {
		t.Errorf("%+v", x)
	}
	out := must.Get(YAML(cfg))(t)
	again, err := load(t, string(out))
	if err != nil || !sameConfig(cfg, again) {
		t.Errorf("read back: %v\n%s", err, out)
	}
}

// TestPlaceOf: an error found on the host names the place where the rule is written.
func TestPlaceOf(t *testing.T) {
	cfg, err := load(t, `expose_paths:
  - {source: /data/a, mode: ro}
  - {source: /data/b, mode: ro}
profiles:
  x:
    expose_paths:
      - {source: /data/c, mode: ro}
      - {source: /data/d, target: /data/b, mode: ro}
    allow_read_paths:
      - ^/data/x$
      - ^/data/y$
`)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"expose_paths[0].source": "chatd.yaml:2: expose_paths[0].source: said", "expose_paths[1].source": "chatd.yaml:8: profiles.x.expose_paths[1].source: said",
		"expose_paths[2].source": "chatd.yaml:7: profiles.x.expose_paths[0].source: said", "allow_read_paths[1]": "chatd.yaml:11: profiles.x.allow_read_paths[1]: said",
	} {
		check := func(_ config.Config, p chat.Profile) (string, error) {
			if p.Name != "x" {
				return "", nil
			}
			return key, errors.New("said")
		}
		if err := cfg.CheckViews(check); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", key, err, want)
		}
	}
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
	was := must.Get(load(t, ""))(t)
	for text, want := range map[string]bool{
		"dns_servers: [192.0.2.1]": false, "egress_user: other": true, "egress_program: /p/e": true,
		"profiles: {x: {network: own}}": true,
	} {
		now := must.Get(load(t, text))(t)
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

const withSecrets = `secrets:
  openai:
    file: /etc/chatd/secrets/openai
    hosts: ["API.openai.com:443", "*.example.org:8443"]
    header: "Authorization: Bearer $"
    env: OPENAI_API_KEY
  git:
    file: /etc/chatd/secrets/git
    hosts: ["git.example.org:443"]
    header: "authorization: Basic bot:$"
    env: GIT_TOKEN
profiles:
  agent:
    egress: ["api.openai.com:443", "*.example.org:443"]
    secrets: [openai, git]
`

// TestSecrets: they are read, printed in the form in which they are read, and need a restart.
func TestSecrets(t *testing.T) {
	cfg := must.Get(load(t, withSecrets))(t)
	s := cfg.Secrets["openai"]
	if s.File != "/etc/chatd/secrets/openai" || s.Env != "OPENAI_API_KEY" ||
		!s.IsFor("api.openai.com", 443) || s.Header.With("x") != "Bearer x" {
		t.Errorf("%+v", s)
	}
	if p := cfg.Profiles["agent"]; len(p.Secrets) != 2 || p.EffectiveNetwork() != chat.NetworkOwn ||
		len(p.AdmittedBridges()) > 0 {
		t.Errorf("%+v", p)
	}
	out := must.Get(YAML(cfg))(t)
	again, err := load(t, string(out))
	if err != nil || !sameConfig(cfg, again) {
		t.Errorf("%v\n%s", err, out)
	}
	other := must.Get(load(t, strings.ReplaceAll(withSecrets, "bot:$", "other:$")))(t)
	if needed, err := config.RestartNeeded(cfg, other); err != nil || !needed {
		t.Errorf("another header: %v, %v", needed, err)
	}
}

// TestSecretsRefused: an error names the key and its line.
func TestSecretsRefused(t *testing.T) {
	for _, x := range []struct{ old, new, want string }{
		{"env: OPENAI", "variable: OPENAI", `chatd.yaml:6: unknown key "variable"`},
		{"  openai:", "  -x:", "chatd.yaml:2: secrets.-x: cannot use secret"},
		{"file: /etc", "file: etc", "chatd.yaml:3: secrets.openai.file: "},
		{`["API.openai.com:443"`, `["API.openai.com"`, "chatd.yaml:4: secrets.openai.hosts[0]: "},
		{`"*.example.org:8443"`, `"192.0.2.1:443"`, "chatd.yaml:4: secrets.openai.hosts[1]: "},
		{`"*.example.org:8443"`, `"nosni:a.example.org:1"`,
			"chatd.yaml:4: secrets.openai.hosts[1]: "},
		{`"*.example.org:8443"`, `"udp:a.example.org:1"`,
			"chatd.yaml:4: secrets.openai.hosts[1]: "},
		{"Bearer $", "Bearer", "chatd.yaml:5: secrets.openai.header: "},
		{"Authorization: B", "Cookie: B", "secrets.openai.header: "},
		{"OPENAI_API_KEY", "PATH", "chatd.yaml:6: secrets.openai.env: "},
		{"OPENAI_API_KEY", "GIT_TOKEN", "profiles.agent.secrets: secrets[1] \"git\": its variable"},
		{"[openai, git]", "[openai, none]",
			"chatd.yaml:15: profiles.agent.secrets: secrets[1] \"none\""},
		{"[openai, git]", "[openai]\n    env: {OPENAI_API_KEY: x}", "is set by env of the profile"},
		{`["api.openai.com:443", `, "[",
			"chatd.yaml:15: profiles.agent.secrets: secrets[0] \"openai\": egress opens none"},
		{"[openai, git]", "[openai]\n    network: none", "network none with secrets"},
		{"[openai, git]", "[openai]\n    network: none", "network none with secrets"},
	} {
		text := strings.Replace(withSecrets, x.old, x.new, 1)
		_, err := load(t, text)
		if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.new, err, x.want)
		}
	}
}
