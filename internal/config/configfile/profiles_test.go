package configfile

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestShippedProfiles: the default profile has the seed's limits; the two for agents have more, and
// open nothing.
func TestShippedProfiles(t *testing.T) {
	cfg := must.Get(load(t, ""))(t)
	second := chat.Duration(time.Second)
	for name, want := range map[string]chat.Limits{
		"default":     {MemoryMax: 256 << 20, PidsMax: 200, CPUQuota: second / 4, CPUPeriod: second, ShmSize: 16 << 20, DiskLimits: chat.DiskLimits{DiskMax: 2 << 30, InodesMax: 200_000}, ProcessLimits: chat.ProcessLimits{NoFile: 1024}, IOLimits: chat.IOLimits{IOWeight: 100}},
		"agent":       {MemoryMax: 1 << 30, PidsMax: 512, CPUQuota: second / 10, CPUPeriod: second / 10, ShmSize: 64 << 20, DiskLimits: chat.DiskLimits{DiskMax: 4 << 30, InodesMax: 400_000}, ProcessLimits: chat.ProcessLimits{NoFile: 4096}, IOLimits: chat.IOLimits{IOWeight: 100}},
		"agent-large": {MemoryMax: 2 << 30, PidsMax: 1024, CPUQuota: second / 5, CPUPeriod: second / 10, ShmSize: 256 << 20, DiskLimits: chat.DiskLimits{DiskMax: 8 << 30, InodesMax: 800_000}, ProcessLimits: chat.ProcessLimits{NoFile: 8192}, IOLimits: chat.IOLimits{IOWeight: 100}},
	} {
		p := cfg.Profiles[name]
		if p.Defaults != (name != "default") {
			t.Errorf("%s: defaults %t", name, p.Defaults)
		}
		if p.Limits != want || len(p.Opens()) > 0 || !slices.Contains(p.Commands, "git") || !p.Guard.EnableDenyPatterns {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if agent := cfg.Profiles["agent"]; !slices.Contains(agent.Commands, "claude") || slices.Contains(cfg.Profiles["default"].Commands, "claude") {
		t.Errorf("agent's commands: %q", agent.Commands)
	}
}

// TestProfileOfAShippedName: such a profile inherits the shipped one's keys, except bridges, which
// depends on what it opens itself.
func TestProfileOfAShippedName(t *testing.T) {
	cfg, err := load(t, `profiles:
  agent:
    egress: ["203.0.113.5:443"]
    limits: {memory_max: 1536MiB}
    commands_add: [mytool]
    env: {MODEL: large}
  default:
    limits: {pids_max: 64}
    commands: [sh]
    env: {A: b}
  other: {commands_add: [ls]}
  shell: {limits: {pids_max: 99}}
`)
	if err != nil {
		t.Fatal(err)
	}
	agent, other := cfg.Profiles["agent"], cfg.Profiles["other"]
	if l := agent.Limits; l.MemoryMax != 1536<<20 || l.PidsMax != 512 || l.NoFile != 4096 || len(agent.Bridges) != 0 || agent.Env["MODEL"] != "large" {
		t.Errorf("agent: %+v", agent)
	}
	for _, command := range []string{"git", "claude", "mytool"} {
		if !slices.Contains(agent.Commands, command) {
			t.Errorf("agent has no %s", command)
		}
	}
	if other.Limits != chat.DefaultLimits() || !slices.Contains(other.Commands, "git") || !slices.Contains(other.Commands, "ls") || len(other.Env) > 0 {
		t.Errorf("other: %+v", other)
	}
	if d := cfg.Profiles["default"]; d.Limits.PidsMax != 64 || len(d.Commands) != 1 || d.Env["A"] != "b" || cfg.Profiles["shell"].Limits.PidsMax != 99 {
		t.Errorf("default: %+v", d)
	}
}

// TestCommandSets: commands names sets, also of one's own, and takes names away, also inherited ones;
// a set that is not there and a name that was not there are errors.
func TestCommandSets(t *testing.T) {
	cfg, err := load(t, `command_sets: {mine: [one, two, three]}
profiles:
  bare: {commands: ["@mine", "-two", four]}
  base: {commands: ["@base"]}
  agent: {commands_add: ["-gemini", "@mine"]}
  default: {commands_add: ["-ssh"]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Profiles["bare"].Commands; !slices.Equal(got, []string{"one", "three", "four"}) {
		t.Errorf("bare: %q", got)
	}
	for name, want := range map[string]map[string]bool{
		"base":        {"ls": true, "sed": true, "gcc": false, "curl": false, "ssh": false, "strace": true},
		"agent":       {"ls": true, "gcc": true, "curl": true, "ssh": true, "claude": true, "gemini": false, "two": true},
		"default":     {"ls": true, "gcc": true, "curl": true, "ssh": false, "claude": false},
		"agent-large": {"gemini": true, "ssh": true, "two": false},
	} {
		for command, there := range want {
			if slices.Contains(cfg.Profiles[name].Commands, command) != there {
				t.Errorf("%s: %s is there: %t", name, command, !there)
			}
		}
	}
	for text, want := range map[string]string{
		`commands: ["@none"]`:          `1: profiles.x.commands: "@none": want @ and one of base, dev, net`,
		`commands: ["@base", "-curl"]`: `1: profiles.x.commands: "-curl": want the name of a command that is named before it`,
		`commands: [@base]`:            `1: want quotes around what begins with @`,
	} {
		if _, err := load(t, "profiles: {x: {"+text+"}}\n"); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestDefaultsOfAShippedName: a profile that extends a shipped one keeps its default rules, unless
// the file switches them off or has rules of its own; a printed config reads back the same.
func TestDefaultsOfAShippedName(t *testing.T) {
	for text, want := range map[string]bool{
		"profiles: {agent: {}}":                                          true,
		`profiles: {agent: {egress: ["203.0.113.5:443"]}}`:               true,
		"profiles: {agent: {defaults: false}}":                           false,
		"profiles: {agent: {access_file: /etc/chatd/rules.yaml}}":        false,
		"profiles: {agent: {commands: [sh]}, default: {defaults: true}}": true,
	} {
		cfg := must.Get(load(t, text))(t)
		printed := must.Get(YAML(cfg))(t)
		again, err := load(t, string(printed))
		if err != nil || cfg.Profiles["agent"].Defaults != want || again.Profiles["agent"].Defaults != want {
			t.Errorf("%s: defaults %t, and printed %t, want %t: %v", text, cfg.Profiles["agent"].Defaults, again.Profiles["agent"].Defaults, want, err)
		}
	}
	if cfg, err := load(t, "profiles: {default: {defaults: true}, other: {}}"); err != nil || cfg.Profiles["other"].Defaults {
		t.Errorf("another name has defaults of default: %v", err)
	}
}

// TestProfileEnv: names that chatd sets, or that change what runs before the chat's own commands,
// are refused with their line; so are too many.
func TestProfileEnv(t *testing.T) {
	const text = "profiles:\n  x:\n    env:\n      FINE: y\n      "
	for _, name := range []string{"PATH", "HOME", "LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "SHELLOPTS", "CHATD_PLAIN", "GODEBUG", "TMUX", "TMPDIR", "XDG_CONFIG_HOME", "A-B", "1A"} {
		_, err := load(t, text+name+": x\n")
		if want := "chatd.yaml:5: profiles.x.env." + name; !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for _, value := range []string{strings.Repeat("x", chat.MaxEnvBytes), `"a\0b"`} {
		if _, err := load(t, text+"A: "+value+"\n"); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%.20q: %v", value, err)
		}
	}
}
