package rulefile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func mustLoad(t testing.TB, text string) *filerules.Policy {
	t.Helper()
	p, err := Load("p.yaml", []byte(text))
	must.True(t, err == nil, "%v\n%s", err, text)
	return p
}

func list(rules []filerules.Rule) string {
	var lines []string
	for _, r := range rules {
		lines = append(lines, fmt.Sprintf("%s | %s | %s", r, r.Place, r.Layer))
	}
	return strings.Join(lines, "\n")
}

// The seed's two samples load unchanged, whatever the file's name.
func TestSamples(t *testing.T) {
	for _, name := range []string{"testdata/sample1.json5", "testdata/sample2.json5"} {
		text := must.Get(os.ReadFile(name))(t)
		for _, called := range []string{"clawdbot.json", "p.json5", "p.yaml", "policy"} {
			p, err := Load(called, text)
			if err != nil {
				t.Errorf("%s called %s: %v", name, called, err)
				continue
			}
			for agent, want := range samples[name] {
				if got := list(p.Rules(agent)); got != strings.ReplaceAll(want, "FILE", called) {
					t.Errorf("%s called %s, agent %s:\n%s\nwant\n%s", name, called, agent, got, want)
				}
			}
		}
	}
}

const defaultsText = `
deny ~/.ssh/** | built in | defaults
deny ~/.gnupg/** | built in | defaults
deny **/.env | built in | defaults
deny **/secrets/** | built in | defaults`

const sample1Global = `deny ~/.ssh/** | FILE:6 | global rules
deny ~/.gnupg/** | FILE:7 | global rules
deny **/.env for read, write, edit | FILE:8 | global rules
deny **/secrets/** | FILE:9 | global rules
allow ~/.ssh/config for read | FILE:11 | global rules` + defaultsText

var samples = map[string]map[string]string{
	"testdata/sample1.json5": {
		"other":           sample1Global,
		"main":            "deny ~/work/client/** | FILE:22 | agent rules\n" + sample1Global,
		"secrets-manager": "allow **/.env for read, write, edit | FILE:30 | agent rules\nallow ~/.gnupg/** for read | FILE:31 | agent rules\n" + sample1Global,
	},
	"testdata/sample2.json5": {
		"main": `allow ~/.ssh/config for read | FILE:7 | global rules
deny ~/.ssh/** | FILE:4 | global deny
deny ~/.gnupg/** | FILE:4 | global deny
deny **/.env | FILE:4 | global deny` + defaultsText,
	},
}

// Equivalent YAML and JSON5 give equal policies.
func TestBothLanguages(t *testing.T) {
	yaml := "access:\n  mode: first-match\n  useDefaults: false\n  messages: vague\n  deny:\n    - 'a/**'\n    - /x\nagents:\n  m:\n    access: {rules: [{allow: '*.c', ops: [read, bash]}]}\n"
	json := "{access:\n  {mode: 'first-match',\n  useDefaults: false,\n  messages: \"vague\",\n  deny: [\n    'a/**',\n    '/x',\n  ]}, agents:\n  {\"m\":\n    {access: {rules: [{allow: '*.c', ops: ['read', 'bash'],}]}}},}"
	a, b := mustLoad(t, yaml), mustLoad(t, json)
	for _, agent := range []string{"m", "main"} {
		if x, y := list(a.Rules(agent)), list(b.Rules(agent)); strings.ReplaceAll(x, "yaml:10", "yaml:10") != y || x == "" {
			t.Errorf("%s:\n%s\n%s", agent, x, y)
		}
	}
	if a.Mode != filerules.FirstMatch || b.Mode != filerules.FirstMatch || a.UseDefaults || b.UseDefaults || !a.Terse || !b.Terse {
		t.Errorf("%+v\n%+v", a, b)
	}
	if p := mustLoad(t, "{access: {deny: [/x, /y], mode: first-match}}"); p.Mode != filerules.FirstMatch || len(p.Rules("main")) != 6 {
		t.Errorf("a YAML flow mapping: %+v", p)
	}
	for _, empty := range []string{"", "# nothing\n", "{}", "// nothing\n{}", "---\n"} {
		if p := mustLoad(t, empty); p.Mode != filerules.DenyWins || !p.UseDefaults || p.Terse || list(p.Rules("main")) != strings.TrimSpace(defaultsText) {
			t.Errorf("%q: %+v", empty, p)
		}
	}
	if p := mustLoad(t, "routing: {agents: {m: {access: {deny: [/x]}}}}\nagents: {n: {access: {deny: [/y]}}}"); fmt.Sprint(p.Agents()) != "[m n]" || len(p.Rules("m")) != 5 || len(p.Rules("n")) != 5 {
		t.Errorf("%+v", p)
	}
}

// Every error names the file, the line, the value and the expectation.
var loadErrors = map[string]string{
	"guard: {custom_deny_patterns: ['a', '(']}":                   "p.yaml:1: guard.custom_deny_patterns[1]: error parsing regexp: missing closing ): `(`: want a regular expression (RE2)",
	"guard:\n  custom_allow_patterns:\n  - ok\n  - ''\n":          `p.yaml:4: guard.custom_allow_patterns[1]: want a regular expression (RE2) of 1 to 4096 bytes, got the string ""`,
	"guard: {preset: strict}":                                     `p.yaml:1: guard.preset: want default or picoclaw or none, got the string "strict"`,
	"guard: {enable_deny_patterns: 1}":                            `p.yaml:1: guard.enable_deny_patterns: want true or false, got a number`,
	"guard: {custom_deny_patterns: x}":                            `p.yaml:1: guard.custom_deny_patterns: want a list of regular expressions, got the string "x"`,
	"guard: {deny: []}":                                           `p.yaml:1: guard: unknown key "deny": want preset,`,
	"acces: {}":                                                   `p.yaml:1: unknown key "acces": want access, agents, guard, routing`,
	"access: {denny: []}":                                         `p.yaml:1: access: unknown key "denny": want rules, deny, mode, useDefaults, messages`,
	"access:\n  rules:\n    - denny: x":                           `p.yaml:3: access.rules[0]: unknown key "denny": want deny or allow, ops`,
	"agents: {m: {workspace: x}}":                                 `p.yaml:1: agents.m: unknown key "workspace": want access`,
	"agents: {m: {access: {mode: x}}}":                            `p.yaml:1: agents.m.access: unknown key "mode": want rules, deny`,
	"routing: {allowFrom: []}":                                    `p.yaml:1: routing: unknown key "allowFrom": want agents`,
	"agents: {-x: {}}":                                            `p.yaml:1: agents: "-x" is no agent name`,
	"access:\n  deny: ['']":                                       `p.yaml:2: access.deny[0]: want a pattern, got an empty one`,
	"access: {deny: ['//']}":                                      `want a pattern, got an empty one`,
	"access: {rules: [{deny: ''}]}":                               `p.yaml:1: access.rules[0].deny: want a pattern, got an empty one`,
	"access: {deny: ['{,a}']}":                                    `access.deny[0]: want no empty pattern in braces, got "{,a}"`,
	"access: {mode: deny}":                                        `p.yaml:1: access.mode: want deny-wins or first-match, got the string "deny"`,
	"access: {mode: [x]}":                                         `access.mode: want deny-wins or first-match, got a list`,
	"access: {messages: loud}":                                    `access.messages: want verbose or vague, got the string "loud"`,
	"access: {useDefaults: 'false'}":                              `access.useDefaults: want true or false, got the string "false"`,
	"access: {useDefaults: no}":                                   `access.useDefaults: want true or false, got the string "no"`,
	"access: {useDefaults: 0}":                                    `access.useDefaults: want true or false, got a number`,
	"access:\n  rules:\n  - deny: x\n    ops: [read,\n      rad]": `p.yaml:5: access.rules[0].ops[1]: want read, write, edit, bash or *, got the string "rad"`,
	"access: {rules: [{deny: x, ops: [Read]}]}":                   `want read, write, edit, bash or *, got the string "Read"`,
	"access: {rules: [{deny: x, ops: []}]}":                       `access.rules[0].ops: want a list of read, write, edit, bash or *, got an empty list`,
	"access: {rules: [{deny: x, ops: read}]}":                     `access.rules[0].ops: want a list of read, write, edit, bash or *, got the string "read"`,
	"access: {rules: [{deny: x, ops: {read: true}}]}":             `got a mapping`,
	"access: {rules: [{deny: x, ops: }]}":                         `got null`,
	"access: {rules: [{deny: x, ops: [1]}]}":                      `access.rules[0].ops[0]: want read, write, edit, bash or *, got a number`,
	"access: {rules: [{deny: x, allow: y}]}":                      `access.rules[0]: want either deny or allow, got both`,
	"access: {rules: [{ops: [read]}]}":                            `access.rules[0]: want either deny or allow, got neither`,
	"access: {rules: [{}]}":                                       `got neither`,
	"access: {rules: [x]}":                                        `access.rules[0]: want a mapping with deny or allow, ops, got the string "x"`,
	"access: {rules: x}":                                          `access.rules: want a list of rules, got the string "x"`,
	"access: {deny: x}":                                           `access.deny: want a list of patterns, got the string "x"`,
	"access: {deny: [[x]]}":                                       `access.deny[0]: want a pattern, got a list`,
	"access: {deny: [1]}":                                         `access.deny[0]: want a pattern, got a number`,
	"access: {deny: [~]}":                                         `access.deny[0]: want a pattern, got null`,
	"access: {rules: [{deny: [x]}]}":                              `access.rules[0].deny: want a pattern, got a list`,
	"access: x":                                                   `access: want a mapping with rules, deny, mode, useDefaults, messages, got the string "x"`,
	"access:\n":                                                   `access: want a mapping with rules`,
	"agents: [m]":                                                 `agents: want a mapping of agent names, got a list`,
	"- x":                                                         `p.yaml:1: want a mapping with access, agents, guard, routing, got a list`,
	"access: {deny: ['/a(/']}":                                    `access.deny[0]: want a regular expression between the slashes`,
	"access: {deny: ['/a(?=b)/']}":                                `want a regular expression`,
	"access: {deny: ['/**/']}":                                    `a directory has no slash at its end`,
	"access: {deny: [\"a\\0b\"]}":                                 `access.deny[0]: want a pattern without NUL`,
	"access: {deny: [\"a\\uD800b\"]}":                             `p.yaml:1`,
	"access: {deny: ['a\x00b']}":                                  `p.yaml:1: want text in UTF-8 without NUL`,
	"access:\n  deny: ['a\xffb']":                                 `p.yaml:2: want text in UTF-8 without NUL`,
	"access: {deny: ['[a']}":                                      `want a class like [abc]`,
	"access: {deny: ['[z-a]']}":                                   `want a class like [abc]`,
	"access: {deny: ['[[:alpha:]]']}":                             `want characters or ranges in a class`,
	"access: {deny: ['{a,b']}":                                    `want } after {`,
	"access: {deny: ['a}']}":                                      `want { before }`,
	"access: {deny: ['{a}']}":                                     `want {a,b}`,
	"access: {deny: ['a\\']}":                                     `want a character after \`,
	"access: {deny: ['/a/*/../b']}":                               `want no .. after a wildcard`,
	"access: {deny: ['{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}']}":     `want braces that stand for at most 256 patterns`,
	"access: {deny: [" + strings.Repeat("x", filerules.MaxPattern+1) + "]}": `want a pattern of at most 4096 bytes`,
	"access:\n  deny: [/x]\n  deny: [/y]":                                   `p.yaml:3: access.deny: the key is there twice, first in line 2`,
	"access: {}\naccess: {}":                                                `p.yaml:2: access: the key is there twice`,
	"agents: {m: {}, m: {}}":                                                `the agent is there twice`,
	"agents: {m: {}}\nrouting: {agents: {m: {}}}":                           `p.yaml:2: routing.agents.m: the agent is there twice, first at p.yaml:1`,
	"access:\n  deny:\n    - **/.env":                                       `p.yaml:3`,
	"access: {deny: [*x]}":                                                  `got a YAML alias: put quotes around a pattern that begins with *`,
	"access: &x {deny: [/x]}":                                               `got a YAML anchor`,
	"access: {deny: [!x /y]}":                                               `got a YAML tag`,
	"access: {}\n---\naccess: {}":                                           `want one YAML document, got more`,
	"!x":                                                                    `p.yaml:1: want a mapping with access, agents, guard, routing`,
	"access: [":                                                             `p.yaml:1`,
	"{access: {deny: ['/x' '/y']}}":                                         `p.yaml:1: invalid character '\'' after array element: want JSON5`,
	"{access:\n {deny: ['/x'],\n  deny: ['/y']}}":                           `p.yaml:3: access.deny: the key is there twice, first in line 2`,
	"{access:\n {deny: '/x',\n  'rules'\n:\n [{ deny: 1 }]}}":               `p.yaml:2: access.deny: want a list of patterns, got the string "/x"`,
	"{\n'acces'\n:\n {}}":                                                   `p.yaml:2: unknown key "acces"`,
	"{access:\n\n {x:1}}":                                                   `p.yaml:3: access: unknown key "x"`,
	"{access: {deny: [\"a\\u0000b\"]}}":                                     `want a pattern without NUL`,
	"{access: {deny: [\"\\ud800\"]}}":                                       `want a pattern in UTF-8`,
	"/* {access: {}}":                                                       `p.yaml:1: a comment begins and does not end`,
	"// c\n{access: {deny: ['/x']}} {}":                                     `p.yaml:2: invalid character '{' after top-level value`,
	"{access: {mode: null}}":                                                `got null`,
	"{access: {rules: [{deny: 'x', ops: [[[[[[[[[[[[[[['read']]]]]]]]]]]]]]]}]}}":        `access.rules[0].ops[0]: want read`,
	strings.Repeat("[", maxOpeners+1):                                                    `p.yaml:1: it is nested too deep`,
	"access: {deny: [" + strings.Repeat("/x, ", filerules.MaxRules) + "/y]}":             `want at most 1000 rules in a file`,
	"access: {deny: [" + strings.Repeat("'/{a,b,c,d}', ", filerules.MaxRules/4) + "/y]}": `access.deny[250]: want at most 1000 rules in a file, each of a brace counted`,
	"access:\n  deny: [" + strings.Repeat("'[a]', ", maxOpeners):                         `p.yaml:2: it is nested too deep, or in too many pieces`,
	"a:\n\n" + strings.Repeat("[", maxNested+1):                                          `p.yaml:3: it is nested too deep`,
	"a:\n" + strings.Repeat("- ", 1000):                                                  `p.yaml:2: it is nested too deep`,
	"# " + strings.Repeat("x", maxFile):                                                  `p.yaml: it has`,
}

func TestLoadErrors(t *testing.T) {
	for text, want := range loadErrors {
		_, err := Load("p.yaml", []byte(text))
		var faults filerules.Faults
		if !errors.As(err, &faults) || !errors.Is(err, chat.ErrInvalid) || !strings.HasPrefix(err.Error(), "cannot use p.yaml") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q\n got %.300v\nwant %s", text, err, want)
		}
	}
}

// All errors of a file are reported together, in the order of its lines.
func TestAllErrors(t *testing.T) {
	_, err := Load("p.yaml", []byte("access:\n  mode: x\n  rules:\n    - {deny: '', ops: [run]}\n    - {deny: '[', allow: y}\n  deny: z\nagents:\n  m: {acces: {}}\nrest: 1\n"))
	want := `cannot use p.yaml:2: access.mode: want deny-wins or first-match, got the string "x"
cannot use p.yaml:4: access.rules[0].deny: want a pattern, got an empty one
cannot use p.yaml:4: access.rules[0].ops[0]: want read, write, edit, bash or *, got the string "run"
cannot use p.yaml:5: access.rules[1].deny: want a class like [abc], [a-z] or [!abc], got "["
cannot use p.yaml:5: access.rules[1]: want either deny or allow, got both
cannot use p.yaml:6: access.deny: want a list of patterns, got the string "z"
cannot use p.yaml:8: agents.m: unknown key "acces": want access
cannot use p.yaml:9: unknown key "rest": want access, agents, guard, routing`
	expect.True(t, err != nil && err.Error() == want, "got\n%v\nwant\n%s", err, want)
}

// A fault of a rule as a whole precedes the faults within it.
func TestErrorsAreInTheOrderOfLines(t *testing.T) {
	_, err := Load("p.yaml", []byte("access:\n  rules:\n    - ops:\n        - run\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "cannot use p.yaml:3: access.rules[0]: want either deny or allow, got neither\ncannot use p.yaml:4: ") {
		t.Error(err)
	}
}

// TestJSON5: the additions of JSON5 to JSON are read; the library alone would end a comment early.
func TestJSON5(t *testing.T) {
	for _, text := range []string{
		"{access: {deny: ['/x']}}", `{"access": {"deny": ["/x"]}}`, "{access: {deny: [\"/x\",],},}", "// ~/a\n{access:/* a*b/c **/{deny: ['/x'] // '\n}}",
		"/* keep ~/.ssh/** and ~/x\n*/ {access: {deny: ['\\/x']}} // end", "{access: {deny: ['/\\\nx']}}", "\r\n{ access :{ deny :[ '/x' ] } }\r\n",
		"{access: {deny: ['/x'/* 'y' */]}}", "{$schema: 1}",
	} {
		p, err := Load("p.json5", []byte(text))
		if strings.Contains(text, "$schema") {
			expect.True(t, err != nil && strings.Contains(err.Error(), `unknown key "$schema"`),
				"%q: %v", text, err)
			continue
		}
		expect.True(t, err == nil && len(p.Global.Deny) == 1 && p.Global.Deny[0].Pattern == "/x",
			"%q: %+v, %v", text, p, err)
	}
	p, err := Load("p.json5", []byte(`{access: {deny: ["// no comment", "a/* neither */"]}}`))
	if err != nil || p.Global.Deny[0].Pattern != "// no comment" || p.Global.Deny[1].Pattern != "a/* neither */" {
		t.Errorf("%+v, %v", p, err)
	}
}

// A rule that a command can bypass, a rule without effect and a directory that reads as an
// expression load with a warning.
func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"access: {rules: [{deny: '**/.env', ops: [read]}], useDefaults: false}":                                                "p.yaml:1: deny **/.env for read: ops has no bash, so that this command gets through: cat ./.env",
		"access: {rules: [{deny: '~/a/**', ops: [read, write]}]}":                                                              "gets through: cat ~/a",
		"access: {rules: [{deny: '/a/[bc]?/*.x', ops: [write]}]}":                                                              "",
		"access: {rules: [{deny: '/\\.pem$/', ops: [edit]}]}":                                                                  "",
		"access: {rules: [{deny: '**/.env', ops: [read]}]}":                                                                    "",
		"access: {rules: [{deny: '*.lock', ops: [write, edit]}]}":                                                              "",
		"access: {rules: [{deny: '/x$/', ops: [read]}]}":                                                                       "gets through: cat of a path that matches",
		"access: {rules: [{deny: '/x', ops: [read]}, {deny: '/x', ops: [bash]}]}":                                              "",
		"access: {rules: [{deny: '~/x', ops: [read]}, {deny: '~/x', ops: [bash]}]}":                                            "",
		"access: {rules: [{deny: '/x', ops: [read, bash]}]}":                                                                   "",
		"access: {rules: [{deny: '/x', ops: [bash]}]}":                                                                         "",
		"access: {rules: [{deny: '/x$/', ops: [bash]}]}":                                                                       "",
		"access: {rules: [{deny: '/x', ops: [bash]}, {deny: '/x', ops: [read, write, edit]}]}":                                 "",
		"access: {rules: [{allow: '/x'}]}":                                                                                     "p.yaml:1: allow /x: a global allow has no force in mode deny-wins",
		"access: {rules: [{allow: '/x'}], mode: first-match}":                                                                  "",
		"access: {deny: ['/etc/ssl/']}":                                                                                        "between slashes is a regular expression: for a directory, want /etc/ssl",
		"agents: {m: {access: {rules: [{allow: '/x'}, {deny: '/y', ops: [read]}]}}}":                                           "p.yaml:1: deny /y for read: ops has no bash",
		"agents: {m: {access: {rules: [{allow: '/y'}]}}}\naccess: {deny: ['/y', '/secrets']}":                                  "",
		"agents: {m: {access: {rules: [{allow: '~/keys/pub', ops: [read]}]}}}\naccess: {useDefaults: false, deny: ['~/keys']}": "",
		"agents: {m: {access: {rules: [{allow: '~/**', ops: [read]}]}}}\naccess: {useDefaults: false, deny: ['~/keys']}":       "",
		"agents: {m: {access: {rules: [{allow: '~/keys/pub'}]}}}\naccess: {useDefaults: false, deny: ['~/keys']}":              "p.yaml:1: allow ~/keys/pub: the directory around it is closed: what is there when a session starts is open, and what comes from outside into a directory that was there; the chat cannot make it",
	} {
		p := mustLoad(t, text)
		said := p.Warnings
		got := strings.Join(said, "\n")
		wants := strings.Split(want, "\n")
		if len(said) > len(wants) || (want == "") != (got == "") || slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(got, w) }) {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for text := range loadErrors {
		if len(text) < 1000 {
			f.Add("p.yaml", []byte(text))
		}
	}
	for name := range samples {
		text, err := os.ReadFile(name)
		must.Do(f, err)
		f.Add("p.json5", text)
	}
	for _, s := range []string{
		"", "0: *0", `{"\1`, `{access:{deny:["\x8000"]}}`, "0: 0\n - 00 0\n 0 00000",
		"0{{:[{:\"\":[\"\"\n{:\"\"" + strings.Repeat("\n0*0", 100),
	} {
		f.Add("p", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		p, err := Load(name, text)
		var faults filerules.Faults
		if err != nil && (!errors.As(err, &faults) || len(faults) == 0 || !errors.Is(err, chat.ErrInvalid)) {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil {
			return
		}
		read, err := filerules.ReadCompiled(p.Compiled())
		if err != nil || utf8.ValidString(name) && string(read.Compiled()) != string(p.Compiled()) {
			t.Fatalf("%q: its compiled form is read as another: %v", text, err)
		}
		for _, agent := range append(read.Agents(), "main") {
			rs, err := read.For(filerules.Scope{Agent: agent, Home: "/h", Cwd: "/h/w"})
			must.True(t, err == nil, "%q loads and does not compile: %v", text, err)
			for _, r := range rs.Rules() {
				if r.Pattern == "" || r.Ops == 0 || r.Place == "" || len(r.Matchers) == 0 || r.Effect != filerules.Allow && r.Effect != filerules.Deny {
					t.Fatalf("%q: %+v", text, r)
				}
			}
			must.Get(rs.Check("a/../.env", filerules.Read))(t)
		}
	})
}
