package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestParseID(t *testing.T) {
	if id, err := ParseID("0123456789abcdef"); err != nil || id != "0123456789abcdef" || id.User() != "chat-0123456789abcdef" {
		t.Errorf("%s, %v", id, err)
	}
	for _, s := range []string{"", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdef0", "chat-0123456789a", "../../etc/passwd", "0123456789abcde\n", "-123456789abcdef", "0123456789abcdeé"} {
		if _, err := ParseID(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseID(%q): %v, want ErrInvalid", s, err)
		}
	}
}

func TestDeriveID(t *testing.T) {
	key := []byte("install key")
	seen := map[ID]string{}
	for _, in := range []struct {
		owner, external string
		window          int
	}{{"a", "b", 0}, {"a", "b", 1}, {"a", "b", 2}, {"a", "b", 3}, {"ab", "", 0}, {"", "ab", 0}, {"a", "B", 0}, {"b", "a", 0}} {
		id, err := DeriveID(key, in.owner, in.external, in.window)
		if _, parse := ParseID(string(id)); err != nil || parse != nil {
			t.Fatalf("%+v: %s, %v, %v", in, id, err, parse)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%+v and %s have one id", in, other)
		}
		seen[id] = fmt.Sprint(in)
	}
	one, _ := DeriveID(key, "a", "b", 0)
	other, _ := DeriveID([]byte("another key"), "a", "b", 0)
	if one == other {
		t.Error("the key makes no difference: ids of phone numbers could be guessed")
	}
	for _, w := range []int{-1, 4} {
		if _, err := DeriveID(key, "a", "b", w); !errors.Is(err, ErrBusy) {
			t.Errorf("window %d: %v, want ErrBusy", w, err)
		}
	}
}

func TestSpecValidate(t *testing.T) {
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	for _, ok := range []Spec{
		{ExternalID: "../../etc"}, {ExternalID: "-rf"}, {ExternalID: "💬\n"}, {ExternalID: strings.Repeat("x", MaxExternalID)},
		{ExternalID: "x", Owner: "_apt", Profile: "web.2", Agent: "a-b", Labels: map[string]string{"k": "v \x1b"}},
	} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for field, bad := range map[string]Spec{
		"external_id": {}, "external_id ": {ExternalID: "a\x00b"}, "external_id  ": {ExternalID: "\xff"},
		"external_id   ": {ExternalID: strings.Repeat("é", MaxExternalID/2+1)},
		"owner":          {ExternalID: "x", Owner: "a b"}, "profile": {ExternalID: "x", Profile: "../x"}, "agent": {ExternalID: "x", Agent: "-a"},
		"labels": {ExternalID: "x", Labels: map[string]string{"": "v"}}, "labels.k": {ExternalID: "x", Labels: map[string]string{"k": strings.Repeat("v", MaxLabelValue+1)}},
		"labels ": {ExternalID: "x", Labels: many},
	} {
		if err := bad.Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(field)) {
			t.Errorf("%s: %v, want ErrInvalid that names it", field, err)
		}
	}
}

func TestAllow(t *testing.T) {
	for _, s := range []string{"203.0.113.5:443", "10.0.0.0/8:8000-8080", "[2001:db8::/32]:443", "[::1]:53", "udp:192.0.2.1:53", "0.0.0.0/0:80", "[::/0]:1-65535"} {
		a, err := ParseAllow(s)
		if err != nil || a.String() != s {
			t.Errorf("ParseAllow(%q) = %q, %v", s, a, err)
		}
	}
	for _, s := range []string{"", ":", "203.0.113.5", "203.0.113.5:0", "203.0.113.5:70000",
		"203.0.113.5:9-8", "10.0.0.1/8:80",
		"2001:db8::1:443", "[203.0.113.5]:80", "[::ffff:10.0.0.1]:80", "[fe80::1%eth0]:80", "1.2.3.4:80 -j ACCEPT", "1.2.3.4:-1", "sctp:1.2.3.4:5"} {
		if a, err := ParseAllow(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseAllow(%q) = %q, %v, want ErrInvalid", s, a, err)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a\x1b[2J\xff" + strings.Repeat("é", 40))
	f.Fuzz(func(t *testing.T, s string) {
		for limit, q := range map[int]string{maxQuoted: Quote(s), maxOutputQuoted: QuoteOutput(s)} {
			if !utf8.ValidString(q) || len(q) > 6*limit+10 || strings.ContainsAny(q, "\n\x1b\x00\x7f") {
				t.Errorf("quoted after %d bytes, %q is %s", limit, s, q)
			}
		}
	})
}

func TestProfile(t *testing.T) {
	allow, err := ParseAllow("192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	good := Profile{Name: "p", Limits: DefaultLimits(), Commands: []string{"*", "ls"}}
	if err := good.Validate(); err != nil || good.EffectiveNetwork() != NetworkNone {
		t.Errorf("%v, %s", err, good.EffectiveNetwork())
	}
	open := good
	open.Egress = []Allow{allow}
	if err := open.Validate(); err != nil || open.EffectiveNetwork() != NetworkOwn {
		t.Errorf("%v, %s", err, open.EffectiveNetwork())
	}
	for name, bad := range map[string]func(*Profile){
		"name": func(p *Profile) { p.Name = "a/b" }, "network": func(p *Profile) { p.Network = "host" },
		"none with egress": func(p *Profile) { p.Network, p.Egress = NetworkNone, []Allow{allow} },
		"command":          func(p *Profile) { p.Commands = []string{"../x"} }, "command ": func(p *Profile) { p.Commands = []string{""} },
		"memory": func(p *Profile) { p.Limits.MemoryMax = 1 }, "pids": func(p *Profile) { p.Limits.PidsMax = 1 },
		"period": func(p *Profile) { p.Limits.CPUPeriod = Duration(2 * time.Second) }, "quota": func(p *Profile) { p.Limits.CPUQuota = 0 },
		"freeze_after": func(p *Profile) { p.FreezeAfter, p.SleepAfter = 6e9, 6e9 },
		"nofile":       func(p *Profile) { p.Limits.NoFile = 3 },
		"shm":          func(p *Profile) { p.Limits.ShmSize = 1 },
	} {
		p := good
		bad(&p)
		if err := p.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestRunSpec(t *testing.T) {
	for _, ok := range []RunSpec{{Command: "true"}, {Argv: []string{"-rf", ""}}, {Command: "x", Env: map[string]string{"A": "b\n"}, Timeout: MaxTimeout},
		{Command: "x", OutputMax: MinOutputMax}, {Command: "x", OutputMax: MaxOutputMax}} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for name, bad := range map[string]RunSpec{
		"neither": {}, "both": {Command: "x", Argv: []string{"y"}}, "empty argv[0]": {Argv: []string{""}},
		"NUL": {Command: "a\x00"}, "NUL in argv": {Argv: []string{"a", "\x00"}}, "NUL in cwd": {Command: "x", Cwd: "\x00"},
		"env name": {Command: "x", Env: map[string]string{"A=B": ""}}, "env NUL": {Command: "x", Env: map[string]string{"A": "\x00"}},
		"long": {Command: strings.Repeat("x", MaxArgs+1)}, "stdin": {Command: "x", Stdin: strings.Repeat("x", MaxStdin+1)},
		"timeout": {Command: "x", Timeout: LongestTimeout + 1}, "negative": {Command: "x", Timeout: -1},
		"output_max small": {Command: "x", OutputMax: MinOutputMax - 1}, "output_max large": {Command: "x", OutputMax: MaxOutputMax + 1},
		"output_max negative": {Command: "x", OutputMax: -1},
	} {
		if err := bad.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if err := (RunSpec{Command: "x", OutputMax: 1000}).Validate(); err == nil || err.Error() != "cannot run: output_max 1000: want 1024 to 4194304 bytes, or 0 for 1048576: invalid" {
		t.Error(err)
	}
	if err := (RunSpec{Command: "x", OutputMax: MinOutputMax}).CheckStreamed(); !errors.Is(err, ErrInvalid) {
		t.Errorf("output_max of a run that is streamed: %v", err)
	}
	if err := (RunSpec{Command: "x"}).CheckStreamed(); err != nil {
		t.Error(err)
	}
	for cwd, want := range map[string]string{"": "/h", "a/b": "/h/a/b", "/tmp/../etc": "/etc", "..": "/"} {
		if got := (RunSpec{Cwd: cwd}).Dir("/h"); got != want {
			t.Errorf("cwd %q is %s, want %s", cwd, got, want)
		}
	}
}

func TestInput(t *testing.T) {
	for _, ok := range []Input{{Text: "x"}, {Enter: true}, {Keys: []string{"C-c"}}, {Size: &TTY{40, 500}}, {Size: &TTY{1, 1}, Text: "x"}, {Text: "x", Wait: &Wait{Until: UntilPrompt, Max: MaxWait}}, {Text: "x", Wait: &Wait{Until: UntilQuiet, Quiet: 1}},
		{Text: strings.Repeat("é", MaxKeyByKey), KeyByKey: true}, {Enter: true, OnlyIf: &OnlyIf{Prompt: PromptAbsent}}, {Keys: []string{"Up"}, OnlyIf: &OnlyIf{Program: "pi"}}} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for _, bad := range []Input{{}, {Size: &TTY{0, 5}}, {Size: &TTY{5, 501}}, {Size: &TTY{5, 5}, Text: "x", OnlyIf: &OnlyIf{Program: "x"}}, {Size: &TTY{5, 5}, Wait: &Wait{Until: UntilPrompt}}, {Text: "x", Wait: &Wait{}}, {Text: "x", Wait: &Wait{Until: UntilScreen}}, {Text: "x", Wait: &Wait{Until: UntilQuiet, Pattern: "x"}}, {Text: "x", Wait: &Wait{Until: UntilScreen, Pattern: "("}},
		{Text: "x", Wait: &Wait{Until: UntilScreen, Pattern: "(a{30}b{30}){30}"}}, {Text: "x", Wait: &Wait{Until: UntilScreen, Pattern: strings.Repeat("x", MaxPattern+1)}}, {Text: "x", Wait: &Wait{Until: UntilOutput, Quiet: 1}}, {Text: "x", Wait: &Wait{Until: "always"}}, {Text: "x", Wait: &Wait{Until: UntilMax}},
		{Text: "x", Wait: &Wait{Until: UntilPrompt, Quiet: 1}}, {Text: "x", Wait: &Wait{Until: UntilQuiet, Max: MaxWait + 1}}, {Text: "x", Wait: &Wait{Until: UntilQuiet, Quiet: -1}},
		{Text: "x", Keys: []string{"Up"}}, {Enter: true, Keys: []string{"Up"}}, {Text: "\x00"}, {Text: strings.Repeat("x", MaxInput+1)},
		{Text: strings.Repeat("x", MaxKeyByKey+1), KeyByKey: true}, {Enter: true, KeyByKey: true}, {Text: "x", OnlyIf: &OnlyIf{}}, {Text: "x", OnlyIf: &OnlyIf{Prompt: "there"}}} {
		if err := bad.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: %v, want ErrInvalid", bad.Text, err)
		}
	}
}

func TestDurationInJSON(t *testing.T) {
	b, err := json.Marshal(Duration(90 * time.Second))
	if err != nil || string(b) != `"1m30s"` {
		t.Errorf("%s, %v", b, err)
	}
	var d Duration
	if err := json.Unmarshal([]byte(`"250ms"`), &d); err != nil || d.D() != 250*time.Millisecond {
		t.Errorf("%s, %v", d, err)
	}
	for _, bad := range []string{`"x"`, `"60"`, `""`} {
		if err := json.Unmarshal([]byte(bad), &d); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestCallers(t *testing.T) {
	for _, c := range []struct {
		caller Caller
		owner  string
		want   bool
	}{
		{Caller{Name: "b", Role: RoleBridge}, "b", true}, {Caller{Name: "b", Role: RoleBridge}, "c", false},
		{Caller{Name: "b", Role: RoleBridge}, "", false}, {Caller{Role: RoleBridge}, "", false},
		{Caller{Name: "root", Role: RoleOperator}, "b", true}, {Caller{Name: "b"}, "b", false}, {Caller{}, "", false},
	} {
		if got := c.caller.MayReach(c.owner); got != c.want {
			t.Errorf("%+v reaches %q: %v, want %v", c.caller, c.owner, got, c.want)
		}
	}
	if c := CallerFrom(context.Background()); c != (Caller{}) {
		t.Errorf("a context without a caller has %+v", c)
	}
	want := Caller{Name: "x", UID: 7, Role: RoleBridge}
	if c := CallerFrom(WithCaller(context.Background(), want)); c != want {
		t.Errorf("%+v", c)
	}
}

func TestLayerNamesAreWhole(t *testing.T) {
	seen := map[LayerName]bool{}
	for _, l := range LayerNames() {
		if seen[l] || CheckName("layer", string(l)) != nil {
			t.Errorf("layer %q", l)
		}
		seen[l] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d layers, want 16", len(seen))
	}
}
