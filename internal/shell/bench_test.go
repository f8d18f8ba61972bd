package shell

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCheckCommand is one command, checked by 1,000 rules that are not about it.
func BenchmarkCheckCommand(b *testing.B) {
	var rules strings.Builder
	rules.WriteString("access:\n  mode: first-match\n  rules:\n")
	forms := []string{"/srv/data/%d/**", "~/projects/p%d/key", "**/private-%d/**", "*.ext%d", `/\.secret%d$/`, "~/work/*/x%d", "{a,b}%d/*.k"}
	for i := range 875 { // with the alternatives of their braces 1,000
		fmt.Fprintf(&rules, "    - {deny: '%s', ops: [read, bash]}\n", fmt.Sprintf(forms[i%len(forms)], i))
	}
	rs := ruleset(b, rules.String(), "/home/u", "/home/u/w")
	for b.Loop() {
		if v, err := CheckCommand(rs, "grep -rn TODO src | sort > /tmp/todo"); err != nil || v.Denied() {
			b.Fatal(v, err)
		}
	}
}
