package configfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/test/must"
)

// TestStep: a step answers in the compiled form, or writes nothing.
func TestStep(t *testing.T) {
	for _, c := range []struct {
		args       []string
		text, want string
	}{
		{[]string{"config", "c.yaml", "max_awake=7"}, "max_awake: 8\ncgroup: mine\n", ""},
		{[]string{"defaults", "c.yaml", "max_awake=7"}, "", ""},
		{[]string{"config", "c.yaml", "max_awake"}, "", "want KEY/KEY=VALUE"},
		{[]string{"config", "c.yaml"}, "max_awake: x\n", "c.yaml:1: max_awake"},
		{[]string{"rules", "r.yaml"}, "access: {deny: [/x]}", ""},
		{[]string{"rules", "r.yaml"}, "access: {deny: x}", "r.yaml:1: access.deny"},
		{[]string{"rules"}, "", "want what it is and its name"},
		{[]string{"program", "x"}, "", "want config, defaults or rules"},
	} {
		var out bytes.Buffer
		err := Step(c.args, strings.NewReader(c.text), &out)
		if c.want != "" {
			if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
				t.Errorf("%q: %v, and %s", c.args, err, &out)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if c.args[0] == "rules" {
			if p, err := filerules.ReadCompiled(out.Bytes()); err != nil || p.Sum != filerules.SumOf([]byte(c.text)) {
				t.Errorf("%q: %+v, %v", c.args, p, err)
			}
			continue
		}
		cfg, err := config.ReadCompiled(out.Bytes())
		if err != nil || cfg.MaxAwake != 7 || (cfg.Sum != "") != (c.text != "") {
			t.Errorf("%q: %+v, %v", c.args, cfg, err)
		}
	}
}

// TestUsual: what package config says of the defaults is what defaults.yaml says.
func TestUsual(t *testing.T) {
	cfg := must.Get(Compile("", nil, nil))(t)
	if cfg.Homes != config.Homes {
		t.Errorf("homes: %s and %s", cfg.Homes, config.Homes)
	}
	for key, name := range config.Usual() {
		f, ok := fieldOf(reflect.TypeFor[config.Config](), key)
		if !ok || reflect.ValueOf(cfg).FieldByIndex(f.Index).String() != name {
			t.Errorf("%s: %s is not what defaults.yaml has", key, name)
		}
	}
}

// loadWith loads a file and variables, by way of the text that chatd hands to chatd-root.
func loadWith(t *testing.T, text string, environ ...string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	settings, err := Variables(file, environ)
	if err != nil {
		return config.Config{}, err
	}
	for i, s := range settings {
		if settings[i], err = ParseSetting(s.Text()); err != nil || !slices.Equal(settings[i].Path, s.Path) || settings[i].Value != s.Value {
			t.Errorf("%+v reads back as %+v, %v", s, settings[i], err)
		}
	}
	return Load(Flags{File: file, Set: settings})
}

const twoProfiles = "profiles:\n  my.web: {egress: ['a.example:443'], env: {A: b}}\n  other: {}\n"

// TestVariables: a variable sets its key over the file, whatever kind of value that has, and what
// follows from the key follows.
func TestVariables(t *testing.T) {
	cfg, err := loadWith(t, "max_awake: 7\nallow_missing: [pids]\n"+twoProfiles,
		"PATH=/bin", "CHATD_CONFIG=/x", "CHATD_TEST_REQUIRE=all", "CHATD_FAILPOINT=x", "CHATD_HOMES=", "CHATD_RUN=/r=r",
		"CHATD_MAX_AWAKE=8", "CHATD_OWNER_SHARES_RUN_BYTES=1MiB", "CHATD_ALLOW_MISSING=cpu, memory", "CHATD_ARCHIVE_DIR=/a",
		"CHATD_PROFILES_DEFAULT_GUARD_PRESET=picoclaw", "CHATD_PROFILES_AGENT_ACCESS_FILE=/rules",
		`CHATD_PROFILES_MY_WEB_GUARD_CUSTOM_DENY_PATTERNS=["a,b", c]`, "CHATD_PROFILES_MY_WEB_ENV_Model=true",
		"CHATD_PROFILES_OTHER_EGRESS=b.example:1,c.example:2", "CHATD_PROFILES_OTHER_COMMANDS_ADD=foo",
		"CHATD_PROFILES_OTHER_EXPOSE_PATHS=[{source: /opt/x, mode: ro}]", "CHATD_PROFILES_OTHER_LIMITS_CPU_QUOTA=7ms")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MaxAwake != 8 || cfg.Run != "/r=r" || cfg.Homes != "/srv/chatd/homes" || cfg.Archive.Dir != "/a" ||
		cfg.OwnerShares["run_bytes"] != 1<<20 || cfg.OwnerShares["awake"] != 200 || len(cfg.AllowMissing) != 3 {
		t.Errorf("%+v", cfg)
	}
	plain, agent, web, other := cfg.Profiles["default"], cfg.Profiles["agent"], cfg.Profiles["my.web"], cfg.Profiles["other"]
	if plain.Guard.Preset != "picoclaw" || !plain.Guard.RestrictToWorkspace || len(plain.Commands) < 50 ||
		plain.Guard.Place != "CHATD_PROFILES_DEFAULT_GUARD_PRESET" {
		t.Errorf("default: %+v", plain.Guard)
	}
	if agent.Defaults || agent.AccessFile != "/rules" || agent.Limits.PidsMax != 512 {
		t.Errorf("agent: %+v", agent)
	}
	if p := web.Guard.CustomDenyPatterns; len(p) != 2 || p[0].Text != "a,b" || web.Env["A"] != "b" || web.Env["Model"] != "true" || len(web.Egress) != 1 {
		t.Errorf("my.web: %+v", web)
	}
	if len(other.Egress) != 2 || len(other.Bridges) != 0 || other.EffectiveNetwork() != chat.NetworkOwn || len(other.ExposePaths) != 1 ||
		!slices.Contains(other.Commands, "foo") || !slices.Contains(other.Commands, "git") || other.Limits.CPUQuota.String() != "7ms" {
		t.Errorf("other: %+v", other)
	}
}

// TestVariablesRefused: a name that stands for no key or for several, and a value that its key does
// not have, are errors that name the variable.
func TestVariablesRefused(t *testing.T) {
	const ambiguous = "profiles: {my.web: {}, my-web: {}, a: {}, a_env: {}}\n"
	for _, c := range []struct{ text, variable, want string }{
		{"", "CHATD_STAT=/x", `"CHATD_STAT": no key of the config has that name: did you mean CHATD_STATE?`},
		{"", "CHATD_PROFILES_DEFAULT_GAURD_PRESET=none", "did you mean CHATD_PROFILES_DEFAULT_GUARD_PRESET?"},
		{"", "CHATD_PROFILES_NONE_EGRESS=x", `"CHATD_PROFILES_NONE_EGRESS": no key`},
		{"", "CHATD_PROFILES={}", "no key"},
		{"", "CHATD_PROFILES_DEFAULT_NAME=x", "no key"},
		{"", "CHATD_OWNER_SHARES_AWAKES=1", "did you mean CHATD_OWNER_SHARES_AWAKE?"},
		{"", "CHATD_=x", "no key"},
		{ambiguous, "CHATD_PROFILES_MY_WEB_EGRESS=x:1", "it names profiles.my-web.egress and profiles.my.web.egress: want them set in a file"},
		{ambiguous, "CHATD_PROFILES_A_ENV_SKELETON=/x", "it names profiles.a.env.SKELETON and profiles.a_env.skeleton"},
		{"", "CHATD_MAX_AWAKE=many", `CHATD_MAX_AWAKE: max_awake: "many": want a number`},
		{"", "CHATD_STATE=/a\nb\x1b[1m", `CHATD_STATE: state: "/a\nb\x1b[1m": want an absolute path`},
		{"", "CHATD_DNS_SERVERS=[1.1.1.1", "CHATD_DNS_SERVERS: dns_servers: "},
		{"", "CHATD_DNS_SERVERS=[{a: b}]", "CHATD_DNS_SERVERS: dns_servers[0]: want one value, got keys"},
		{"", "CHATD_DNS_SERVERS=[a]: x", "CHATD_DNS_SERVERS: dns_servers: "},
		{"", "CHATD_PROFILES_DEFAULT_KEEP_AWAKE=yes", "CHATD_PROFILES_DEFAULT_KEEP_AWAKE: profiles.default.keep_awake: "},
		{"", "CHATD_PROFILES_DEFAULT_LIMITS_MEMORY_MAX=1", "CHATD_PROFILES_DEFAULT_LIMITS_MEMORY_MAX: profiles.default.limits.memory_max: want"},
		{"", "CHATD_PROFILES_DEFAULT_ENV_PATH=x", "CHATD_PROFILES_DEFAULT_ENV_PATH: profiles.default.env.PATH: "},
		{"", "CHATD_PROFILES_DEFAULT_EXPOSE_PATHS=/data", "CHATD_PROFILES_DEFAULT_EXPOSE_PATHS: profiles.default.expose_paths[0]: want keys"},
		{"", "CHATD_ALLOW_MISSING=cpu,moat", `CHATD_ALLOW_MISSING: allow_missing[1]: "moat"`},
	} {
		_, err := loadWith(t, c.text, c.variable)
		if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "cannot use ") {
			t.Errorf("%q: %v, want %s", c.variable, err, c.want)
		}
	}
	_, err := loadWith(t, "", "CHATD_STAT=/x", "CHATD_HOME=/y")
	if err == nil || strings.Count(err.Error(), "did you mean") != 2 {
		t.Errorf("of two: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	must.Do(t, os.WriteFile(empty, nil, 0o600))
	gone := Setting{[]string{"profiles", "gone", "skeleton"}, "/x", "CHATD_PROFILES_GONE_SKELETON"}
	_, err = Load(Flags{File: empty, Set: []Setting{gone}})
	if err == nil || !strings.Contains(err.Error(), "CHATD_PROFILES_GONE_SKELETON: profiles.gone.skeleton: the file has no such profile") {
		t.Errorf("of a profile that the file has no longer: %v", err)
	}
	if _, err := ParseSetting("state"); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("a setting without a value: %v", err)
	}
}

// TestExplained: each value has its origin behind it, and the text reads back as the same config.
func TestExplained(t *testing.T) {
	cfg, err := loadWith(t, "max_awake: 7\nprofiles:\n  web:\n    env: {A: 'b # c', M: \"x\\ny\"}\n    commands_add: [foo]\n",
		"CHATD_PROFILES_WEB_LIMITS_PIDS_MAX=99", "CHATD_HOMES=/h")
	if err != nil {
		t.Fatal(err)
	}
	text := must.Get(Explained(cfg))(t)
	for _, want := range []string{
		"\nhomes: /h  # CHATD_HOMES\n", "\nstate: /var/lib/chatd", "chatd.yaml:1\n", "  # CHATD_PROFILES_WEB_LIMITS_PIDS_MAX\n",
		"      nofile: 1024  # default\n", "  # default, ", "chatd.yaml:5\n", "state: /var/lib/chatd  # default\n", "\nprofiles:\n",
	} {
		if !strings.Contains("\n"+text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if again, err := load(t, text); err != nil || !sameConfig(cfg, again) {
		t.Errorf("read back: %v\n%s", err, text)
	}
}
