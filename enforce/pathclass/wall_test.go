package pathclass

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func policy(t testing.TB, text string) *filerules.Policy {
	t.Helper()
	p := must.Get(rulefile.Load("rules.yaml", []byte(text)))(t)
	return p
}

// TestClass is the table of specs/0003, "What an operation means to the kernel".
func TestClass(t *testing.T) {
	p := policy(t, `
access:
  useDefaults: false
  rules:
    - {deny: /r, ops: [read]}
    - {deny: /w, ops: [write]}
    - {deny: /e, ops: [edit]}
    - {deny: /b, ops: [bash]}
    - {deny: /all}
    - {deny: "/kids/*"}
    - {deny: /rw, ops: [read, write]}
agents:
  main:
    access:
      rules: [{allow: /all/in, ops: ['*']}, {allow: /all/read, ops: [read]}, {allow: /w/in}]
`)
	rs := must.Get(p.For(filerules.Scope{Home: "/home/user"}))(t)
	w := New(rs)
	for path, want := range map[string]filerules.Class{
		"/": filerules.Open, "/r/x": filerules.Open, "/w": filerules.ReadOnly, "/w/x": filerules.ReadOnly, "/w/in/x": filerules.Open, "/e/x": filerules.ReadOnly,
		"/b": filerules.Closed, "/all": filerules.Closed, "/all/x/y": filerules.Closed, "/all/in": filerules.Open, "/all/in/x": filerules.Open,
		"/all/read": filerules.Closed, "/kids": filerules.Open, "/kids/a": filerules.Closed, "/kids/a/b": filerules.Closed, "/rw/x": filerules.ReadOnly, "/other": filerules.Open,
	} {
		expect.Equal(t, w.Class(path), want, "%s", path)
	}
}

// TestNeeded: an agent needs the kernel where its compiled wall has something to keep.
func TestNeeded(t *testing.T) {
	for rule, want := range map[string]bool{
		`{deny: /x}`: true, `{deny: /x, ops: [bash]}`: true, `{deny: "**/x", ops: [read, edit]}`: true, `{deny: ~/x, ops: [write]}`: true,
		`{deny: /x, ops: [read]}`: false, `{allow: /x}`: false,
	} {
		for _, mode := range []string{"deny-wins", "first-match"} {
			for text, agents := range map[string][]string{
				"access: {useDefaults: false, mode: " + mode + ", rules: [" + rule + "]}":                                        {"", "bot", "other"},
				"access: {useDefaults: false, mode: " + mode + "}\nagents: {bot: {access: {rules: [" + rule + "]}}}":             {"bot"},
				"access: {useDefaults: false, mode: " + mode + "}\nagents: {main: {access: {rules: [" + rule + "]}}, other: {}}": {"", "main"},
			} {
				p := policy(t, text)
				expect.Equal(t, NeededBy(p), want, "%s: needed by one", text)
				for _, agent := range []string{"", "main", "bot", "other"} {
					rs := must.Get(p.For(filerules.Scope{Agent: agent, Home: "/home/user"}))(t)
					if got := Needed(p, agent); got != New(rs).Any || got && !want || slices.Contains(agents, agent) && got != want {
						t.Errorf("%s: agent %q: %v", text, agent, got)
					}
				}
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for rule, why := range map[string]string{
		`{deny: "**/*.pem", ops: [write]}`:           "",
		`{deny: "/x$/", ops: [edit]}`:                "",
		`{deny: "**/*.pem", ops: [write, bash]}`:     "",
		`{deny: "~/conf", ops: [write]}`:             "",
		`{deny: "**/*.pem", ops: [read]}`:            "",
		`{deny: /proc/self/environ}`:                 "does not start without /proc",
		`{deny: /run}`:                               "does not start without /run/chat",
		`{deny: /}`:                                  "does not start without",
		`{allow: "**/*.pem", ops: [write]}`:          "",
		`{deny: dev}`:                                "does not start without /dev",
		`{deny: "/pro*"}`:                            "does not start without /proc",
		`{deny: "*"}`:                                "does not start without",
		`{deny: "*", ops: [edit]}`:                   "does not start without",
		`{deny: usr}`:                                "does not start without /usr",
		`{deny: "/u*"}`:                              "does not start without /usr",
		`{deny: "**/lib/**"}`:                        "does not start without /",
		`{deny: "~"}`:                                "does not start without /srv/chatd/homes/x",
		`{deny: "/srv/*"}`:                           "does not start without /srv/chatd/homes/x",
		`{deny: "/srv/chatd/homes/*"}`:               "does not start without /srv/chatd/homes/x",
		`{deny: "/\\/(bash|tmux)$/"}`:                "does not start without /usr/bin/bash",
		`{deny: "libc.so.*"}`:                        "does not start without /usr/lib",
		`{deny: "/dev/nul?"}`:                        "does not start without /dev",
		`{deny: "/{proc,srv/x}/y"}`:                  "does not start without /proc",
		`{deny: "/opt/*"}`:                           "does not start without /opt/chatd",
		`{deny: "*", ops: [read]}`:                   "",
		`{deny: "~/**", ops: [write]}`:               "",
		`{deny: "/dev/shm/keys"}`:                    "",
		`{deny: "/usr/share/doc/**"}`:                "",
		`{deny: "*.log"}`:                            "",
		`{deny: proc, ops: [read]}`:                  "",
		`{deny: /opt/chatd/chatd-shim, ops: [read]}`: "",
	} {
		for _, text := range []string{"access: {useDefaults: false, rules: [" + rule + "]}", "agents: {bot: {access: {rules: [" + rule + "]}}}"} {
			err := Check(policy(t, text), "/srv/chatd/homes/x")
			if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "rules.yaml:1")) {
				t.Errorf("%s: %v, want %q", text, err, why)
			}
		}
	}
}

// TestSeedSamples: what Clawdbot's proposal shows can be kept as it is pasted.
func TestSeedSamples(t *testing.T) {
	for _, name := range []string{"sample1.json5", "sample2.json5"} {
		text := must.Get(os.ReadFile("../../filerules/rulefile/testdata/" + name))(t)
		p := must.Get(rulefile.Load(name, text))(t)
		if err := Check(p, "/srv/chatd/homes/x"); err != nil || !NeededBy(p) {
			t.Errorf("%s: %v, needed %t", name, err, NeededBy(p))
		}
	}
	for text, want := range map[string]bool{
		"access: {useDefaults: false}":                                          false,
		"access: {useDefaults: false, rules: [{deny: x, ops: [read]}]}":         false,
		"access: {useDefaults: false}\nagents: {bot: {access: {deny: [x]}}}":    true,
		"access: {useDefaults: false, rules: [{deny: '*.x', ops: [edit]}]}":     true,
		"access: {useDefaults: false, rules: [{allow: x, ops: [read, write]}]}": false,
	} {
		expect.Equal(t, NeededBy(policy(t, text)), want, "%s: needed", text)
	}
}

// TestNest: what a look finds fits in each other, whatever the order it was found in.
func TestNest(t *testing.T) {
	w := func(path string, class, parent filerules.Class) Place {
		return Place{Path: path, Class: class, Parent: parent}
	}
	base := func(path string) Place { return Place{Path: path, Base: true} }
	for name, tt := range map[string]struct {
		wants, bases []Place
		want         string
	}{
		"sorted":                        {[]Place{w("/a/b", filerules.Open, filerules.Closed), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open, /a/b open<closed"},
		"not by bytes":                  {[]Place{w("/a-b", filerules.Closed, filerules.Open), w("/a/b", filerules.Open, filerules.Closed), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open, /a/b open<closed, /a-b closed<open"},
		"the strictest of one path":     {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open"},
		"behind a closed link":          {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/b", filerules.Closed, filerules.Open), w("/a/c", filerules.ReadOnly, filerules.Open)}, nil, "/a closed<open"},
		"an exception there":            {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/b", filerules.ReadOnly, filerules.Open), w("/a/b/c", filerules.Open, filerules.ReadOnly)}, nil, "/a closed<open"},
		"closed in what a link opens":   {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a/b", filerules.Closed, filerules.Open)}, nil, "/a read-only<open, /a/b closed<read-only"},
		"an exception in nothing":       {[]Place{w("/a", filerules.Open, filerules.Closed)}, nil, ""},
		"mounts":                        {[]Place{w("/a", filerules.ReadOnly, filerules.Open)}, []Place{base("/"), base("/a/m"), base("/b")}, "/a read-only<open, /a/m read-only<read-only along"},
		"a mount in a closed one":       {[]Place{w("/a", filerules.Closed, filerules.Open)}, []Place{base("/a/m")}, "/a closed<open"},
		"a mount that is denied":        {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a/m", filerules.Closed, filerules.ReadOnly)}, []Place{base("/a/m")}, "/a read-only<open, /a/m closed<read-only along"},
		"a mount that is an exception":  {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/m", filerules.Open, filerules.Closed)}, []Place{base("/a/m")}, "/a closed<open, /a/m open<closed along"},
		"a mount that is masked itself": {[]Place{w("/m", filerules.Closed, filerules.Open)}, []Place{base("/m")}, "/m closed<open"},
	} {
		var got []string
		for _, w := range nest(tt.wants, tt.bases) {
			s := fmt.Sprintf("%s %v<%v", w.Path, w.Class, w.Parent)
			if w.Base {
				s += " along"
			}
			got = append(got, s)
		}
		expect.True(t, strings.Join(got, ", ") == tt.want, "%s: %q, want %q", name, got, tt.want)
	}
}
