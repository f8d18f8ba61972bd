package configfile

import (
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

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
	cfg, err := load(t, withSecrets)
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Secrets["openai"]
	if s.File != "/etc/chatd/secrets/openai" || s.Env != "OPENAI_API_KEY" ||
		!s.IsFor("api.openai.com", 443) || s.Header.With("x") != "Bearer x" {
		t.Errorf("%+v", s)
	}
	if p := cfg.Profiles["agent"]; len(p.Secrets) != 2 || p.EffectiveNetwork() != chat.NetworkOwn ||
		len(p.AdmittedBridges()) > 0 {
		t.Errorf("%+v", p)
	}
	out, err := YAML(cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, string(out))
	if err != nil || !sameConfig(cfg, again) {
		t.Errorf("%v\n%s", err, out)
	}
	other, err := load(t, strings.ReplaceAll(withSecrets, "bot:$", "other:$"))
	if err != nil {
		t.Fatal(err)
	}
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
