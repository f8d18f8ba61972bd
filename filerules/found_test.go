package filerules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	. "github.com/chatd/chatd/filerules"
)

// TestFoundIsBounded: a name that repeats what rules look for, and a word with many wildcards,
// are compared with the rules in a bounded number of steps.
func TestFoundIsBounded(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("access:\n  deny:\n")
	for i := range MaxRules / 2 {
		fmt.Fprintf(&rules, "    - '**/*.k%d*y*z'\n    - '/\\.k%d-x$/'\n", i, i)
	}
	rs := ruleset(t, rules.String(), "/home/u", "/home/u")
	denied := chat.NamedPath{Text: "/x.k5-x"}
	for text, glob := range map[string]bool{
		"/" + strings.Repeat("[a]", 20_000): true, "/" + strings.Repeat("a/", 2000): false,
	} {
		n := chat.NamedPath{Text: text, Glob: glob}
		if v, err := rs.CheckNamed([]chat.NamedPath{n}); !errors.Is(err, chat.ErrInvalid) || v.Effect != "" {
			t.Errorf("%.20s: %v, %v", text, v.Effect, err)
		}
		if v, err := rs.CheckNamed([]chat.NamedPath{denied, n}); err != nil || !v.Denied() {
			t.Errorf("%.20s behind a denied path: %v, %v", text, v.Effect, err)
		}
	}
	if v, err := rs.CheckNamed([]chat.NamedPath{{Text: "/ab.k7*", Glob: true}}); err != nil || v.Denied() {
		t.Errorf("an ordinary word: %v, %v", v, err)
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
