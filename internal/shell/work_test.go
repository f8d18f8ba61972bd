package shell

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// variables is a script that sets this many.
func variables(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "v%d=%s;", i, value)
	}
	return b.String()
}

// TestWorkIsBounded: what a text makes of itself is bounded, and not only the text. Each
// of these took seconds, and some gigabytes; a quarter of each is checked.
func TestWorkIsBounded(t *testing.T) {
	long := "a=" + strings.Repeat("x", 30_000) + ";"
	rs := ruleset(t, "", "/home/u", "/home/u")
	for _, c := range []struct{ command, want string }{
		{strings.Repeat("xargs ", 5000), "words in it"},
		{strings.Repeat("env ", 5000), "words in it"},
		{strings.Repeat("timeout 1 ", 5000), "words in it"},
		{"a=(" + strings.Repeat("/x ", 900) + ");" + strings.Repeat("cat $a;", 4000), "words in it"},
		{variables(3000, "") + strings.Repeat("a=|b=;", 3000), "variables of subshells"},
		{variables(3000, "") + strings.Repeat("a=&", 3000), "variables of subshells"},
		{long + strings.Repeat("echo $a$a$a$a|cat;", 1000), "bytes of words"},
		{long + variables(2000, "$a$a"), "bytes of words"},
		{strings.Repeat("cd aaaaaaaaaa;cat x;", 4000), "bytes of paths"},
		{strings.Repeat("f(){ ", 2000) + ":" + strings.Repeat("; }", 2000), "functions within"},
		{"timeout 1 env xargs rm " + strings.Repeat("a ", 20_000), ""},
		{variables(100, "x") + strings.Repeat("a|b;", 2000), ""},
		{"f(){ " + strings.Repeat("a;", 5000) + "};f", ""},
	} {
		_, ruled := CheckCommand(rs, c.command)
		w, err := Calls(c.command, "/home/u", "/home/u")
		for what, err := range map[string]error{"its paths": ruled, "its calls": err} {
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%.30q, %s: %v, want %s", c.command, what, err, c.want)
			}
		}
		words, bytes := 0, 0
		for _, call := range w.Calls {
			words += len(call.Args)
			for _, a := range call.Args {
				bytes += len(a.Text)
			}
		}
		expect.True(t, words <= maxArgs && bytes <= maxBytes,
			"%.30q: %d words, %d bytes", c.command, words, bytes)
	}
	argv := strings.Fields(strings.Repeat("xargs ", 5000))
	_, err := CallsOf(argv, "/home/u", "/home/u")
	expect.True(t, errors.Is(err, chat.ErrInvalid), "a program's arguments: %v", err)
	_, err = CheckArgv(rs, argv)
	expect.True(t, errors.Is(err, chat.ErrInvalid), "a program's arguments: %v", err)
}
