package filerules_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/must"
)

// rulesOf is a policy with n rules of one kind, of which the last is about the path.
func rulesOf(kind string, n int) string {
	var b strings.Builder
	b.WriteString("access:\n  mode: first-match\n  rules:\n")
	forms := map[string][]string{
		"subtrees": {"/srv/data/%d/**"}, "literals": {"~/projects/p%d/key"}, "names": {"**/private-%d/**"}, "suffixes": {"*.ext%d"},
		"regexes": {`/\.secret%d$/`},
		"mixed":   {"/srv/data/%d/**", "~/projects/p%d/key", "**/private-%d/**", "*.ext%d", `/\.secret%d$/`, "~/work/*/x%d", "{a,b}%d/*.k"},
		"same":    {"/home/u/projects/**/x%d"},
		"shared":  {"/home/u/projects/**/[!h%d]*.go"},
	}[kind]
	for i := range n {
		fmt.Fprintf(&b, "    - {deny: %s, ops: [read, bash]}\n", quote(fmt.Sprintf(forms[i%len(forms)], i)))
	}
	return b.String()
}

// many rules are about 1,000, with the alternatives of their braces.
const many = 875

// BenchmarkExplain is one question to 1,000 rules, of a path that none is about; the shared ones
// have a text that is in the path.
func BenchmarkExplain(b *testing.B) {
	for _, kind := range []string{"mixed", "subtrees", "literals", "names", "suffixes", "regexes", "same", "shared"} {
		for _, n := range []int{10, many} {
			rs := ruleset(b, rulesOf(kind, n), "/home/u", "/home/u/w")
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				for b.Loop() {
					if v, err := rs.Check("/home/u/projects/p3/src/main/handler.go", Read); err != nil || v.Denied() {
						b.Fatal(v, err)
					}
				}
			})
		}
	}
	rs := ruleset(b, rulesOf("mixed", many), "/home/u", "/home/u/w")
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			if v, err := rs.Check("/srv/data/700/x", Read); err != nil || !v.Denied() {
				b.Fatal(v, err)
			}
		}
	})
	real, err := mustLoad(b, rulesOf("mixed", many)).For(Scope{Home: "/home/u", Resolve: Physical})
	must.Do(b, err)
	b.Run("resolved", func(b *testing.B) {
		for b.Loop() {
			if v, err := real.Check("/usr/lib/os-release", Read); err != nil || v.Denied() {
				b.Fatal(v, err)
			}
		}
	})
}
