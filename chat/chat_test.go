package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/test/must"
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
	allow := must.Get(ParseAllow("192.0.2.1:80"))(t)
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

// TestArchiveName: a name is one that chatd makes, and nothing else.
func TestArchiveName(t *testing.T) {
	at := time.Date(2026, 11, 25, 16, 0, 5, 9, time.FixedZone("", 3600))
	name := NewArchiveName("0123456789abcdef", at)
	if name != "0123456789abcdef-20261125T150005Z" || name.ID() != "0123456789abcdef" {
		t.Errorf("the name is %s", name)
	}
	if got, err := ParseArchiveName(string(name)); err != nil || got != name {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{
		"", "0123456789abcdef", "0123456789abcdef-", "0123456789ABCDEF-20261125T150005Z",
		"0123456789abcdef-20261325T150005Z", "0123456789abcdef-20261125T150005Z.json",
		"../0123456789abcdef-20261125T150005Z", "0123456789abcdef-20261125T150005.5Z",
		"0123456789abcdef-20261125T150005Z\n", "0123456789abcdef-20261125T150005Z-",
	} {
		if got, err := ParseArchiveName(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is %q, %v", bad, got, err)
		}
	}
}

// TestExplain: the cause that ended a run, and the limit that it reached, are stated once, with the
// figure.
func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		res  RunResult
		by   EndedBy
		hits LimitHits
		want EndedBy
		why  []string
	}{
		"by itself":               {res: RunResult{Exit: 1}},
		"a signal of its own":     {res: RunResult{Exit: -1, Signal: "SIGKILL"}},
		"a child out of memory":   {res: RunResult{Exit: 1}, hits: LimitHits{OOMKills: 2}, want: EndedByMemory, why: []string{"2 processes", "256MiB (memory_max)"}},
		"memory, and it went on":  {hits: LimitHits{OOMKills: 1}, why: []string{"1 process of the run"}},
		"refused":                 {res: RunResult{Exit: 254}, hits: LimitHits{PidsRefused: 7}, why: []string{"7 forks refused", "200 processes", "pids_max"}},
		"its time":                {res: RunResult{Exit: -1, Signal: "SIGTERM", TimedOut: true}, by: EndedBySleep, want: EndedByTimeout, why: []string{"its timeout, 5s"}},
		"sleep":                   {res: RunResult{Exit: -1, Signal: "SIGKILL"}, by: EndedBySleep, want: EndedBySleep, why: []string{"put to sleep"}},
		"reap, and out of memory": {res: RunResult{Exit: -1, Signal: "SIGKILL"}, by: EndedByReap, hits: LimitHits{OOMKills: 1}, want: EndedByReap, why: []string{"memory_max", "reaped"}},
	} {
		r := c.res
		r.Explain(c.by, Duration(5*time.Second), c.hits, DefaultLimits())
		all := strings.Join(r.Why, "\n")
		missing := slices.DeleteFunc(c.why, func(w string) bool { return strings.Contains(all, w) })
		if r.EndedBy != c.want || len(missing) > 0 || len(c.why) == 0 && len(r.Why) > 0 {
			t.Errorf("%s: ended by %q, why %q", name, r.EndedBy, r.Why)
		}
		if r.OOMKilled != (c.hits.OOMKills > 0) || r.PidsRefused != c.hits.PidsRefused {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for by := range endedWords {
		var r RunResult
		if r.Explain(by, 0, LimitHits{}, DefaultLimits()); len(r.Why) != 1 || r.EndedBy != by {
			t.Errorf("%s: %+v", by, r)
		}
	}
}

// TestErrorText: each line states its kind once, however deep the error is wrapped.
func TestErrorText(t *testing.T) {
	twice := fmt.Errorf("cannot do a: %w: %w", fmt.Errorf("cannot do b: %w", ErrInvalid), ErrInvalid)
	for _, c := range []struct {
		err          error
		text, reason string
	}{
		{ErrBusy, "busy", "busy"},
		{fmt.Errorf("x: %w", ErrNotFound), "x: not found", "x"},
		{twice, "cannot do a: cannot do b: invalid", "cannot do a: cannot do b"},
		{fmt.Errorf("y: %w: %w", twice, ErrInvalid), "y: cannot do a: cannot do b: invalid", "y: cannot do a: cannot do b"},
		{errors.Join(twice, fmt.Errorf("z: %w", ErrDenied)), "cannot do a: cannot do b: invalid\nz: denied", "cannot do a: cannot do b: invalid\nz"},
		{errors.New("plain: text"), "plain: text", "plain: text"},
	} {
		if text, reason := ErrorText(c.err), ErrorReason(c.err); text != c.text || reason != c.reason {
			t.Errorf("%v\n got %q, %q", c.err, text, reason)
		}
	}
}

// TestExitCodes: scripts go by the code of each kind; another error is 1.
func TestExitCodes(t *testing.T) {
	want := map[error]int{
		ErrInvalid: 2, ErrDenied: 3, ErrNotFound: 4, ErrExists: 5, ErrWrongPhase: 6, ErrConflict: 7,
		ErrUnsupported: 69, ErrBusy: 75, nil: 0, errors.New("other"): 1,
	}
	for kind, code := range want {
		err := kind
		if kind != nil {
			err = fmt.Errorf("cannot do it: %w", kind)
		}
		if got := ExitCode(err); got != code {
			t.Errorf("%v: exit %d, want %d", err, got, code)
		}
	}
	for _, kind := range Kinds() {
		if want[kind] == 0 {
			t.Errorf("%v has no code of its own", kind)
		}
	}
}

// TestRunDir: where a run starts, with ~ at the head of its cwd as the home, and nowhere else.
func TestRunDir(t *testing.T) {
	for cwd, want := range map[string]string{
		"": "/h/a", "b": "/h/a/b", "/tmp/x/..": "/tmp", "~": "/h/a", "~/b/c": "/h/a/b/c",
		"~b": "/h/a/~b", "./~/b": "/h/a/~/b",
	} {
		if got := (RunSpec{Cwd: cwd}).Dir("/h/a"); got != want {
			t.Errorf("%q is %s, want %s", cwd, got, want)
		}
	}
}

func TestWholeRunes(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 1, "aä": 3, "a\xc3": 1, "a\xe2\x82": 1, "a\xe2\x82\xac": 4, "a\xf0\x9f\x98": 1, "\xf0\x9f\x98\x80": 4, "\xc3": 0,
		"a\xff": 2, "\x80\x80\x80": 3, "a\xf0\x80\x80\x80\x80": 6, "a\xe2a": 3,
	} {
		if got := WholeRunes([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		p, dir string
		want   bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}, {"/", "/", true}, {"/", "/a", false},
		{"/a/b/c", "/a/b", true}, {"/b", "/a", false}, {"", "/a", false},
	} {
		if got := Within(c.p, c.dir); got != c.want {
			t.Errorf("%q within %q: %t", c.p, c.dir, got)
		}
	}
}
