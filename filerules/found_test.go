package filerules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestFoundIsBounded: a name that repeats what rules look for, and a word with many wildcards,
// are compared with the rules in a bounded number of steps.
func TestFoundIsBounded(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("access:\n  deny:\n")
	for i := range maxRules / 2 {
		fmt.Fprintf(&rules, "    - '**/*.k%d*y*z'\n    - '/\\.k%d-x$/'\n", i, i)
	}
	rs := ruleset(t, rules.String(), "/home/u", "/home/u")
	if _, tried := rs.winner("/"+strings.Repeat(".k7-y", 10_000), Bash); tried > len(rs.rules) {
		t.Errorf("%d matchers were asked, of %d", tried, len(rs.rules))
	}
	if _, steps := rs.checkGlob("/"+strings.Repeat("[a]", 20_000), 1000); steps > 10_000_000 {
		t.Errorf("%d steps, where 1,000 were left", steps)
	}
	const both = "access: {useDefaults: false, deny: ['/a*']}\nagents: {main: {access: {rules: [{deny: '/a*z'}, {allow: '/a*'}]}}}\n"
	agent := ruleset(t, both, "/home/u", "/home/u")
	for _, max := range []int{0, MaxSteps} { // with none left it stops after the first deny
		if v, steps := agent.checkGlob("/ab*", max); v.Denied() || steps == 0 {
			t.Errorf("with %d steps left: %+v after %d", max, v, steps)
		}
	}
}

// TestFoundBehindAClosedDirectory: a path or glob that no rule matches is denied if the kernel
// closes its directory.
func TestFoundBehindAClosedDirectory(t *testing.T) {
	rs := ruleset(t, "access: {useDefaults: false, deny: ['/keys$/']}", "/home/u", "/home/u")
	for _, f := range []chat.NamedPath{{Text: "/a/keys/f"}, {Text: "/a/keys/f*", Glob: true}} {
		if v, _ := rs.CheckNamed([]chat.NamedPath{f}); !v.Denied() || !v.ByKernel {
			t.Errorf("%s: %+v, want a denial by the kernel", f.Text, v)
		}
	}
	if v, _ := rs.CheckNamed([]chat.NamedPath{{Text: "/a/key/f"}}); v.Denied() {
		t.Errorf("beside it: %+v", v)
	}
}
