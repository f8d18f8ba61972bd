package filerules_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	. "github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// compiled is a file with everything that a compiled policy may have.
const compiled = `
access:
  mode: first-match
  messages: vague
  deny: ["~/{a,b}/**", '/\.pem$/']
  rules: [{allow: "*.c", ops: [read, bash]}]
agents:
  m: {access: {rules: [{deny: /x}], deny: [/y]}}
guard:
  custom_deny_patterns: [a, b]
`

// TestCompiled: what is read from the compiled form is the policy that was written, with the lines.
func TestCompiled(t *testing.T) {
	was := mustLoad(t, compiled)
	p := must.Get(ReadCompiled(was.Compiled()))(t)
	if string(p.Compiled()) != string(was.Compiled()) || len(p.Sum) != 64 || !p.Terse || p.Name != "p.yaml" {
		t.Errorf("%s\nwant\n%s", p.Compiled(), was.Compiled())
	}
	if g := p.Guard; g.Place != "p.yaml:10" || g.CustomDenyPatterns[1].Place != "p.yaml:10" {
		t.Errorf("the guard is %+v", g)
	}
	rs := must.Get(p.For(Scope{Agent: "m", Home: "/h"}))(t)
	if v, err := rs.Check("~/b/k", Write); err != nil || !v.Denied() || v.Rule.Place != "p.yaml:5" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestReadCompiledRefuses: a compiled policy that rulefile would not have written is refused.
func TestReadCompiledRefuses(t *testing.T) {
	text := string(mustLoad(t, compiled).Compiled())
	for name, c := range map[string]struct{ old, with, want string }{
		"unknown key":       {`"mode":`, `"x":1,"mode":`, "unknown field"},
		"unknown in rule":   {`"effect":"deny"`, `"effect":"deny","x":1`, "unknown field"},
		"mode":              {`"first-match"`, `"last-match"`, "want deny-wins or first-match"},
		"effect":            {`"effect":"allow"`, `"effect":"maybe"`, "want a rule with effect"},
		"no operation":      {`"ops":9`, `"ops":0`, "want a rule with effect"},
		"operations":        {`"ops":9`, `"ops":16`, "want a rule with effect"},
		"negative":          {`"ops":9`, `"ops":-1`, "cannot unmarshal"},
		"layer":             {`"layer":"global deny"`, `"layer":"agent rules"`, "is where global deny belongs"},
		"none":              {`"globs":["*.c"]`, `"globs":[]`, "want the globs"},
		"many":              {`"globs":["*.c"]`, `"globs":["` + strings.Repeat(`a","`, 256) + `a"]`, "want the globs"},
		"empty":             {`"globs":["*.c"]`, `"globs":[""]`, "want no empty pattern"},
		"NUL":               {`"globs":["*.c"]`, `"globs":["a\u0000"]`, "without NUL"},
		"class":             {`"globs":["*.c"]`, `"globs":["[a"]`, "want a class"},
		"up":                {`"globs":["*.c"]`, `"globs":["/*/../a"]`, "want no .."},
		"of an expression":  {`"globs":[],"ops":15`, `"globs":["a"],"ops":15`, "want the globs"},
		"expression":        {`"pattern":"/\\.pem$/"`, `"pattern":"/(/"`, "want a regular expression"},
		"agent":             {`"m":{`, `"../m":{`, "agent name"},
		"preset":            {`"preset":"default"`, `"preset":"all"`, "guard: preset"},
		"guard's":           {`["a","b"]`, `["a","("]`, "custom_deny_patterns[1]"},
		"more":              {`"warnings":null}`, `"warnings":null} {}`, "text after its end"},
		"cut":               {`"warnings":null}`, "", "unexpected EOF"},
		"too many of them":  {`"deny":[{`, `"deny":[` + strings.Repeat(ruleText(t), MaxRules) + `{`, "want at most 1000"},
		"too long a place":  {`"place":"p.yaml:5"`, `"place":"` + strings.Repeat("p", 9000) + `"`, "want a rule with effect"},
		"too long a glob":   {`"globs":["*.c"]`, `"globs":["` + strings.Repeat("p", MaxPattern+1) + `"]`, "want a pattern of at most"},
		"too long a policy": {`"p.yaml"`, `"` + strings.Repeat("p", MaxCompiled) + `"`, "want at most"},
	} {
		hostile := strings.Replace(text, c.old, c.with, 1)
		expect.True(t, hostile != text, "%s: the compiled form has no %s:\n%s", name, c.old, text)
		_, err := ReadCompiled([]byte(hostile))
		expect.True(t, err != nil && errors.Is(err, chat.ErrInvalid) && strings.Contains(err.Error(), c.want),
			"%s: %.300v, want %s", name, err, c.want)
	}
}

// ruleText is one more rule of a list, with a comma.
func ruleText(t *testing.T) string {
	b := must.Get(json.Marshal(Rule{Effect: Deny, Pattern: "/z", Globs: []string{"/z"}, Ops: All, Layer: LayerGlobalDeny}))(t)
	return string(b) + ","
}

// FuzzReadCompiled: whatever is read has rules that can be compiled and checked.
func FuzzReadCompiled(f *testing.F) {
	f.Add([]byte(`{"mode":"deny-wins","access":{"deny":[{"effect":"deny","pattern":"/x","globs":["/x"],"ops":15,` +
		`"layer":"global deny"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadCompiled(text)
		if err != nil {
			return
		}
		for _, agent := range append(p.Agents(), "") {
			rs := must.Get(p.For(Scope{Agent: agent, Home: "/h"}))(t)
			must.Get(rs.Check("/x/y", Bash))(t)
		}
	})
}
