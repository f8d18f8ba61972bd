package configfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/must"
)

func load(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	cfg, err := Load(Flags{File: file})
	if err == nil {
		crosses(t, cfg)
	}
	return cfg, err
}

// crosses passes a config to another process, as the config step does.
func crosses(t *testing.T, cfg config.Config) {
	t.Helper()
	text := must.Get(cfg.Compiled())(t)
	read, err := config.ReadCompiled(text)
	if err != nil {
		t.Fatalf("the compiled config is refused: %v\n%s", err, text)
	}
	again, err := read.Compiled()
	if err != nil || string(again) != string(text) {
		t.Errorf("the compiled config is read as another: %v\n%s\n%s", err, text, again)
	}
}

func TestDefaultsAreTheirOwnDocumentation(t *testing.T) {
	cfg := must.Get(load(t, ""))(t)
	p := cfg.Profiles[chat.DefaultProfile]
	if p.Limits != chat.DefaultLimits() || p.EffectiveNetwork() != chat.NetworkNone || len(p.Egress) > 0 || len(p.Commands) < 50 {
		t.Errorf("default profile: %+v", p)
	}
	if cfg.Socket != "/run/chatd/chatd.sock" || cfg.UIDs != (config.UIDRange{Low: 1879048192, High: 1895825407}) || cfg.MaxAwake != 500 || cfg.FileMax != 1<<30 || len(cfg.OwnerShares) != len(quota.All()) || cfg.OwnerShares[quota.Awake] != 200 || cfg.OwnerShares[quota.RunBytes] != 256<<20 || cfg.AuditMax != 64<<20 || cfg.AuditKeep != 0 {
		t.Errorf("%+v", cfg)
	}
}

func TestWhatCheckPrintsReadsBackTheSame(t *testing.T) {
	for _, text := range []string{"",
		"egress_user: e\negress_program: /p/e\ndns_servers: ['2001:db8::1', '192.0.2.1:54']\n",
		"profiles:\n  web:\n    egress: ['203.0.113.0/24:443', 'udp:[2001:db8::1]:53']\n    limits: {memory_max: 1GiB}\nallow_missing: [cpu]\naudit_max: 0\naudit_keep: 9\nfile_max: 2MiB\nowner_shares: {awake: 0, run_bytes: 1GiB}\n"} {
		cfg := must.Get(load(t, text))(t)
		out := must.Get(YAML(cfg))(t)
		again, err := load(t, string(out))
		if err != nil || !sameConfig(cfg, again) {
			t.Errorf("%v\n%+v\n%+v\n%s", err, cfg, again, out)
		}
	}
}

// sameConfig treats nil and empty lists as equal.
func sameConfig(a, b config.Config) bool {
	x, errX := YAML(a)
	y, errY := YAML(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func TestProfilesAreAdded(t *testing.T) {
	cfg, err := load(t, "max_awake: 7\nmax_awake_memory: 4GiB\nprofiles:\n  web:\n    limits:\n      memory_max: 1GiB\n      pids_max: 64\n    egress: ['203.0.113.5:443']\n  bare:\n    commands: []\n")
	if err != nil {
		t.Fatal(err)
	}
	web, base := cfg.Profiles["web"], cfg.Profiles["default"]
	want := chat.DefaultLimits()
	want.MemoryMax, want.PidsMax = 1<<30, 64
	if web.Name != "web" || web.Limits != want || web.EffectiveNetwork() != chat.NetworkOwn || !reflect.DeepEqual(web.Commands, base.Commands) {
		t.Errorf("web: %+v", web)
	}
	if len(cfg.Profiles["bare"].Commands) != 0 || len(cfg.Profiles) != 5 || cfg.MaxAwake*int(cfg.MaxAwakeMemory) != 7*4<<30 {
		t.Errorf("%+v", cfg)
	}
	cfg, err = load(t, "profiles:\n  default:\n    commands: [sh]\n    egress: ['203.0.113.5:443']\n")
	if p := cfg.Profiles["default"]; err != nil || len(cfg.Profiles) != 3 || len(p.Commands) != 1 || p.Network != "" || len(p.Egress) != 1 {
		t.Errorf("a default of one's own: %v %+v", err, p)
	}
}

// Every error names the file, the line, the value and the expectation.
func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"state: /x\nstate: /y\n":                 `chatd.yaml:2: mapping key "state" already defined`,
		"\n\nstate: x\n":                         `chatd.yaml:3: state: "x": want an absolute path`,
		"backend: docker\n":                      `chatd.yaml:1: backend: "docker": want one of auto, systemd, cgroupfs`,
		"uids: 5-9\n":                            `chatd.yaml:1: uids: "5-9": want LOW-HIGH`,
		"uids: 100000\n":                         `chatd.yaml:1: uids: "100000": want LOW-HIGH`,
		"max_awake: 0\n":                         `chatd.yaml:1: max_awake: "0": want 1 to`,
		"\nmax_awake_memory: 255MiB\n":           `chatd.yaml:2: max_awake_memory: 267386880: no`,
		"file_max: 1023KiB\n":                    `chatd.yaml:1: file_max: "1023KiB": want 1MiB to 1TiB`,
		"file_max: 2TiB\n":                       `chatd.yaml:1: file_max: "2TiB": want 1MiB to 1TiB`,
		"audit_max: 64\n":                        `chatd.yaml:1: audit_max: "64": want 0, for never, or at least 64KiB`,
		"audit_max: -1\n":                        `chatd.yaml:1: audit_max: "-1": want a number`,
		"audit_keep: -1\n":                       `chatd.yaml:1: audit_keep: "-1": want 0 to`,
		"owner_shares:\n  awake: x\n":            `chatd.yaml:2: owner_shares.awake: "x": want a number`,
		"owner_shares:\n  uids: 9TiB\n":          `chatd.yaml:2: owner_shares.uids: "9TiB": want 0, for no bound`,
		"bridge_group: -rf\n":                    `chatd.yaml:1: bridge_group: cannot use a group name "-rf"`,
		"allow_missing:\n  - cpu\n  - moat\n":    `chatd.yaml:3: allow_missing[1]: "moat": want one of account, home`,
		"profiles:\n  x:\n    egress:\n     - a": `chatd.yaml:4: profiles.x.egress[0]: cannot use egress "a"`,
		"profiles:\n  x:\n    limits:\n      memory_max: 1 potato\n":      `chatd.yaml:4: profiles.x.limits.memory_max: "1 potato": want a number`,
		"profiles:\n  x:\n    limits:\n      cpu_quota: 250\n":            `chatd.yaml:4: profiles.x.limits.cpu_quota: cannot use "250" as a time`,
		"profiles:\n  -rf: {}\n":                                          `cannot use profile "-rf"`,
		"profiles:\n  x:\n    network: none\n    egress: ['1.2.3.4:5']\n": `network none with 1.2.3.4:5 in egress`,
		"a: [\n":                               `chatd.yaml:1:`,
		"state: /x\n---\nstate: /y\n":          `want one YAML document`,
		"socket: /" + strings.Repeat("x", 200): `want at most 90`,
		"state: /x\nprofiles:\n  x:\n    limits: {memory_max: 18446744073709551615TiB}\n": `chatd.yaml:4: profiles.x.limits.memory_max`,
	} {
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "cannot ") || !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
}

// faultyConfig has a fault on each of its lines that end with the fault's place.
const faultyConfig = `backend: docker         # 1: backend: "docker"
max_awake: 0            # 2: max_awake: "0"
allow_missing: [moat]   # 3: allow_missing[0]: "moat"
stat: /x                # 4: unknown key "stat"
max_awake_memory: [1]   # 5: max_awake_memory: want one value, got a list
dns_servers: 192.0.2.1  # 6: dns_servers: want a list, got one value
owner_shares:
  awakes: 1             # 8: unknown key "awakes"
  uids: x               # 9: owner_shares.uids: "x"
user: chatd
egress_user: chatd      # 11: egress_user: "chatd": want another than user
archive:
  dir: a                # 13: archive.dir: "a"
  expire_after: 30s     # 14: archive.expire_after: "30s"
secrets:
  s: {file: f, header: h, hosts: [x]} # 16: secrets.s.header
profiles:
  x:
    skeleton: etc       # 19: profiles.x.skeleton: "etc"
    egres: []           # 20: unknown key "egres"
    keep_awake: maybe   # 21: profiles.x.keep_awake: "maybe": want true or false
    guard:
      preset: strict    # 23: profiles.x.guard.preset: "strict"
      custom_deny_patterns: ['(', a, ')'] # 24: profiles.x.guard.custom_deny_patterns[2]: ")"
    limits:
      memory_max: 1     # 26: profiles.x.limits.memory_max: want at least 16 MiB
      pids_max: some    # 27: profiles.x.limits.pids_max: "some"
      potatoes: 1       # 28: unknown key "potatoes"
    commands: [/bin/sh] # 29: profiles.x.commands: command "/bin/sh"
    tools_off: [bash]   # 30: profiles.x.tools_off[0]: "bash"
    timeout_max: 25h    # 31: profiles.x.timeout_max: 25h
    sleep_after: soon   # 32: profiles.x.sleep_after: cannot use "soon"
    env: {LD_PRELOAD: x} # 33: profiles.x.env.LD_PRELOAD
    bridges: ["a b"]    # 34: profiles.x.bridges[0]
    expose_paths: {a: b} # 35: profiles.x.expose_paths: want a list, got keys
    allow_read_paths: ['('] # 36: profiles.x.allow_read_paths[0]
    allow_netlink: on   # 37: profiles.x.allow_netlink: "on": want true or false
  y:
    egress: [a, 'b:1', c] # 39: profiles.y.egress[2]
    reap_after: 30s     # 40: profiles.y.reap_after: "30s"
    network: shared     # 41: profiles.y.network: network shared is no longer there
  z: [1]                # 42: profiles.z: want keys, got a list
`

// TestAllConfigErrors: one error lists every fault of a config, each once.
func TestAllConfigErrors(t *testing.T) {
	_, err := load(t, faultyConfig)
	if !errors.Is(err, chat.ErrInvalid) {
		t.Fatal(err)
	}
	faults := strings.Split(err.Error(), "\n")
	wanted := 3 // three lines have two
	for _, line := range strings.Split(faultyConfig, "\n") {
		_, want, any := strings.Cut(line, " # ")
		if !any {
			continue
		}
		if wanted++; strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s\ndoes not say %s once", err, want)
		}
	}
	if len(faults) != wanted {
		t.Errorf("%d faults, want %d:\n%s", len(faults), wanted, err)
	}
}

// TestNamesAreLookedUp: the users and groups that a config names are there, or the load says which
// are not; those that chatd was built with need not be.
func TestNamesAreLookedUp(t *testing.T) {
	cfg, err := load(t, "operators_group: staff\nbridge_group: nosuchgroup\nuser: nobody\negress_user: nosuchuser\n"+
		"archive:\n  dir: /a\n  command: [/bin/cat]\n  user: nokeeper\n")
	if err != nil {
		t.Fatal(err)
	}
	there := func(database, name string) error {
		switch database + " " + name {
		case "group staff", "passwd nobody":
			return nil
		}
		return chat.ErrNotFound
	}
	err = cfg.CheckNames(there)
	for _, want := range []string{
		`chatd.yaml:2: bridge_group: "nosuchgroup": this host has no such group`,
		`chatd.yaml:4: egress_user: "nosuchuser": this host has no such user`,
		`chatd.yaml:8: archive.user: "nokeeper": this host has no such user`,
	} {
		if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("more than three: %v", err)
	}
	busy := func(string, string) error { return chat.ErrBusy }
	if err := cfg.CheckNames(busy); err != nil {
		t.Errorf("of a host that does not answer: %v", err)
	}
	none := func(string, string) error { return chat.ErrNotFound }
	if cfg, err = load(t, "operators_group: chatd-operators\n"); err != nil || cfg.CheckNames(none) != nil {
		t.Errorf("the usual names: %v, %v", err, cfg.CheckNames(none))
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]uint64{"0": 0, "1024": 1024, "1KiB": 1024, "256MiB": 256 << 20, "2 GiB": 2 << 30, "1TiB": 1 << 40} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-1", "1MB", "MiB", "1.5GiB", "0x10", "9999999999TiB"} {
		if n, err := ParseSize(s); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("ParseSize(%q) = %d, %v", s, n, err)
		}
	}
}

// TestAnchors: an alias stands for what its anchor names, and keys go before merged ones; an alias
// of nothing, or of what it is in, is refused.
func TestAnchors(t *testing.T) {
	cfg, err := load(t, "profiles:\n  a: &a\n    egress: &e ['203.0.113.5:443']\n    limits: &l {pids_max: 64}\n"+
		"  b: {egress: *e, limits: *l}\n  c: {limits: {nofile: 99}, <<: *a}\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, pids := range map[string]uint64{"a": 64, "b": 64, "c": 200} {
		p := cfg.Profiles[name]
		if len(p.Egress) != 1 || p.Limits.PidsMax != pids || p.Limits.NoFile == 99 != (name == "c") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	for _, text := range []string{"state: *x\n", "profiles: {a: &a {limits: *a}}\n", "profiles: {a: &a {<<: *a}}\n"} {
		if _, err := load(t, text); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(defaultsYAML)
	f.Add([]byte("profiles:\n  x:\n    egress: ['1.2.3.4:5']\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := Compile("fuzz", text, nil)
		switch {
		case err == nil:
			crosses(t, cfg)
		case !errors.Is(err, chat.ErrInvalid):
			t.Errorf("%q: %v", text, err)
		}
	})
}

// TestReadOnly: readonly in tools_off switches off every tool that can write, and no other.
func TestReadOnly(t *testing.T) {
	cfg := must.Get(load(t, "profiles: {ro: {tools_off: [readonly, exec]}}\n"))(t)
	for _, tool := range chat.Tools() {
		reads := tool == chat.ToolReadFile || tool == chat.ToolListDir
		if err := cfg.Profiles["ro"].CheckTool(tool); (err == nil) != reads {
			t.Errorf("%s: %v", tool, err)
		}
	}
}

// TestAgentsOfProfile: the tools of an agent are read by its name, also by a variable; a tool that
// is not one, and another key, are errors with their line.
func TestAgentsOfProfile(t *testing.T) {
	cfg, err := loadWith(t, "profiles:\n  p:\n    agents:\n      reader: {tools: [readonly]}\n      main: {tools_off: [exec]}\n",
		"CHATD_PROFILES_P_AGENTS_MAIN_TOOLS_OFF=terminal,readonly")
	p := cfg.Profiles["p"]
	if err != nil || p.As("reader").CheckTool(chat.ToolExec) == nil || p.As("reader").CheckTool(chat.ToolReadFile) != nil ||
		p.As("main").CheckTool(chat.ToolWriteFile) == nil || p.CheckTool(chat.ToolExec) != nil {
		t.Errorf("%+v, %v", p.Agents, err)
	}
	for text, want := range map[string]string{
		"a:\n        tools: [bash]": `5: profiles.p.agents.a.tools[0]: "bash": want one of exec`,
		"a:\n        tool: []":      `5: unknown key "tool"`,
		"-x: {}":                    `4: profiles.p.agents.-x: cannot use agent "-x"`,
	} {
		if _, err := load(t, "profiles:\n  p:\n    agents:\n      "+text+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestGuardKeys: a profile's guard keys are read, missing ones inherited, and mistakes reported
// with their line.
func TestGuardKeys(t *testing.T) {
	cfg, err := load(t, "profiles:\n  pico:\n    guard: {preset: picoclaw, custom_allow_patterns: ['^a$']}\n    tools_off: [exec]\n  free:\n    guard: {enable_deny_patterns: false, restrict_to_workspace: true}\n  plain: {}\n")
	if err != nil {
		t.Fatal(err)
	}
	pico, free := cfg.Profiles["pico"], cfg.Profiles["free"].Guard
	if g := pico.Guard; g.Preset != chat.GuardPicoClaw || !g.EnableDenyPatterns || !g.RestrictToWorkspace || len(g.CustomAllowPatterns) != 1 || !strings.HasSuffix(g.CustomAllowPatterns[0].Place, "chatd.yaml:3") {
		t.Errorf("%+v", g)
	}
	if err := pico.CheckTool("exec"); !errors.Is(err, chat.ErrDenied) || pico.CheckTool("read_file") != nil {
		t.Error(err)
	}
	if free.EnableDenyPatterns || !free.RestrictToWorkspace || free.Preset != chat.GuardDefault {
		t.Errorf("%+v", free)
	}
	for _, name := range []string{"plain", chat.DefaultProfile} {
		if g := cfg.Profiles[name].Guard; !g.EnableDenyPatterns || g.Preset != chat.GuardDefault || g.RestrictToWorkspace {
			t.Errorf("%s: %+v", name, g)
		}
	}
	for text, want := range map[string]string{
		"profiles:\n  x:\n    guard:\n      custom_deny_patterns:\n      - a\n      - '('\n": "chatd.yaml:6: profiles.x.guard.custom_deny_patterns[1]: \"(\": error parsing regexp",
		"profiles: {x: {guard: {custom_allow_patterns: ['']}}}":                              "chatd.yaml:1: profiles.x.guard.custom_allow_patterns[0]: want a regular expression",
		"profiles: {x: {guard: {preset: strict}}}":                                           `profiles.x.guard.preset: "strict": want one of default, picoclaw, none`,
		"profiles: {x: {guard: {restrict_to_workspace: no}}}":                                `profiles.x.guard.restrict_to_workspace: "no": want true or false`,
		"profiles: {x: {guard: {deny: []}}}":                                                 `unknown key "deny"`,
		"profiles: {x: {timeout_max: 25h}}":                                                  `profiles.x.timeout_max: 25h0m0s: want 1s to 24h0m0s`,
		"profiles: {x: {sleep_after: 1ms}}":                                                  `profiles.x.sleep_after: 1ms: want 0, for never,`,
		"profiles: {x: {timeout_max: soon}}":                                                 `profiles.x.timeout_max: cannot use "soon" as a time`,
		"profiles: {x: {tools_off: [bash]}}":                                                 `profiles.x.tools_off[0]: "bash": want one of exec, terminal, read_file`,
	} {
		if _, err := load(t, text); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestFreezeAfterKey: freeze_after is less than sleep_after of the same profile.
func TestFreezeAfterKey(t *testing.T) {
	cfg, err := load(t, "profiles: {x: {freeze_after: 10m, sleep_after: 1d}}")
	if err != nil || cfg.Profiles["x"].FreezeAfter.String() != "10m0s" {
		t.Errorf("%v, %v", cfg.Profiles["x"].FreezeAfter, err)
	}
	for text, want := range map[string]string{
		"freeze_after: 1ms":                   "1ms: want 0, for never,",
		"freeze_after: soon":                  `"soon"`,
		"freeze_after: 30m, sleep_after: 30m": "30m0s: want less than sleep_after, which is 30m0s",
	} {
		_, err := load(t, "profiles: {x: {"+text+"}}")
		if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "profiles.x.freeze_after") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestGuardIsNotInherited: a profile without guard keys has those of defaults.yaml, whatever the
// file's own default profile has, in any order of reading.
func TestGuardIsNotInherited(t *testing.T) {
	for range 20 {
		cfg, err := load(t, "profiles:\n  default: {guard: {preset: none}, commands: [a]}\n  x: {}\n  y: {}\n")
		if err != nil || cfg.Profiles["default"].Guard.Preset != chat.GuardNone {
			t.Fatalf("%+v, %v", cfg.Profiles["default"].Guard, err)
		}
		for _, name := range []string{"x", "y"} {
			if p := cfg.Profiles[name]; p.Guard.Preset != chat.GuardDefault || !p.Guard.EnableDenyPatterns || len(p.Commands) < 50 {
				t.Fatalf("%s: %+v, %d commands", name, p.Guard, len(p.Commands))
			}
		}
	}
}

// TestGuardInRules: a profile takes the guard of its file of rules; a profile with both is refused.
func TestGuardInRules(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Do(t, os.WriteFile(rules, []byte("guard: {preset: none, custom_deny_patterns: [x]}"), 0o600))
	cfg, err := load(t, "profiles: {x: {access_file: "+rules+"}}")
	if err == nil {
		_, err = cfg.Rules(Rules)
	}
	if g := cfg.Profiles["x"].Guard; err != nil || g.Preset != chat.GuardNone || len(g.CustomDenyPatterns) != 1 || g.CustomDenyPatterns[0].Place != rules+":1" {
		t.Errorf("%+v, %v", g, err)
	}
	cfg, err = load(t, "profiles: {x: {access_file: "+rules+", guard: {preset: default}}}")
	if err == nil {
		_, err = cfg.Rules(Rules)
	}
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "rules.yaml:1: want one") {
		t.Error(err)
	}
}

// TestDefaultRules: defaults: true gives a profile the default rules without a file, and
// beside a file it is an error.
func TestDefaultRules(t *testing.T) {
	cfg := must.Get(load(t, "profiles: {p: {defaults: true}, q: {}}"))(t)
	policies, err := cfg.Rules(Rules)
	if err != nil || policies["p"] == nil || len(policies["p"].Rules("")) != 4 || policies["q"] != nil {
		t.Errorf("%+v, %v", policies, err)
	}
	if _, err := load(t, "profiles: {p: {defaults: true, access_file: /x}}"); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "want useDefaults in the file") {
		t.Errorf("with a file: %v", err)
	}
}

// TestEveryLimit sets each limit by its key, and wants defaults.yaml to have it.
func TestEveryLimit(t *testing.T) {
	base := must.Get(readDefaults())(t)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chat.Limits]()) {
		if f.Anonymous {
			continue
		}
		key, value := f.Tag.Get("yaml"), "17"
		if f.Type == reflect.TypeFor[chat.Duration]() {
			value = "17s"
		}
		d, err := readDefaults()
		if err == nil {
			err = d.read("x", []byte("profiles: {x: {limits: {"+key+": "+value+"}}}"))
		}
		got := reflect.ValueOf(d.doc.Profiles["x"].Limits).FieldByIndex(f.Index)
		if err != nil || fmt.Sprint(got.Interface()) != value {
			t.Errorf("limits.%s is %v, want %s, %v", key, got, value, errors.Join(err, d.Err()))
		}
		if _, ok := base.Places["profiles.default.limits."+key]; !ok {
			t.Errorf("limits.%s is not in defaults.yaml", key)
		}
	}
}

func loadText(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return Load(Flags{File: file})
}

// TestArchive: archives have a directory; a command has a user; a time after which something is
// gone is no slip; and no chat is reaped without an archive unless its profile says so.
func TestArchive(t *testing.T) {
	cfg, err := loadText(t, `archive:
  dir: /a
  command: [/bin/keep, now]
  user: backup
  recipients: /r
  identities: /i
  expire_after: 180d
profiles:
  default: {reap_after: 26w}
`)
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Archive
	if a.Dir != "/a" || len(a.Command) != 2 || a.User != "backup" || a.Recipients != "/r" ||
		a.Identities != "/i" || a.ExpireAfter.D() != 180*24*time.Hour ||
		filepath.Base(a.Program) != "chatd-archive" {
		t.Errorf("%+v", a)
	}
	if p := cfg.Profiles["default"]; p.ReapAfter.D() != 26*7*24*time.Hour || p.ReapWithoutArchive {
		t.Errorf("reap_after is %s", p.ReapAfter)
	}
	if cfg, err := loadText(t, "profiles: {default: {reap_after: 1h, reap_without_archive: true}}\n"); err != nil ||
		cfg.Archive != nil {
		t.Errorf("without archives: %+v, %v", cfg.Archive, err)
	}
	for text, want := range map[string]string{
		"archive: {}\n":         "archive.dir",
		"archive: {dir: a}\n":   "1: archive.dir: \"a\": want an absolute path",
		"archive: {dirs: /a}\n": "unknown key",
		"archive:\n  dir: /a\n  command: [keep]\n  user: x\n":              "3: archive.command: \"keep\"",
		"archive:\n  dir: /a\n  command: [/bin/keep]\n":                    "want archive.user too",
		"archive:\n  dir: /a\n  user: x\n":                                 "3: archive.user: there is no command",
		"archive:\n  dir: /a\n  expire_after: 30s\n":                       "3: archive.expire_after: \"30s\": want 0",
		"archive:\n  dir: /a\n  recipients: r\n":                           "3: archive.recipients",
		"profiles:\n  default:\n    reap_after: 30d\n":                     "3: profiles.default.reap_after: chats of profile default would be gone",
		"archive: {dir: /a}\nprofiles:\n  default:\n    reap_after: 30s\n": "4: profiles.default.reap_after: \"30s\"",
	} {
		if _, err := loadText(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestBridges: without the key bridges, the profile's own keys decide which bridges may use it, and
// not the paths exposed to all profiles.
func TestBridges(t *testing.T) {
	cfg, err := load(t, `expose_paths: [{source: /opt/go, mode: ro}]
profiles:
  plain: {}
  web: {egress: ['203.0.113.5:443']}
  adas: {egress: ['203.0.113.5:443'], bridges: [ada, bob]}
  all: {egress: ['203.0.113.5:443'], bridges: ["*"]}
  none: {bridges: []}
`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"default": {"*"}, "plain": {"*"}, "web": {}, "adas": {"ada", "bob"}, "all": {"*"}, "none": {}} {
		if got := cfg.Profiles[name].Bridges; got == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := cfg.OperatorsOnly(); !reflect.DeepEqual(got, []string{"none", "web"}) {
		t.Errorf("for operators alone: %q", got)
	}
	for text, want := range map[string]string{
		"profiles:\n  x:\n    bridges:\n     - ada\n     - ../x\n": `chatd.yaml:5: profiles.x.bridges[1]: cannot use owner "../x"`,
		"profiles:\n  x:\n    bridges: ada\n":                      `chatd.yaml:3:`,
	} {
		if _, err := load(t, text); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q\n got %v\nwant %s", text, err, want)
		}
	}
}
