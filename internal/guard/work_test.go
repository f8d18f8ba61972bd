package guard

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/shell"
	"github.com/chatd/chatd/test/expect"
)

// made is how many bytes f makes.
func made(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// TestWorkIsLinear: a command twice as long makes twice as much. What is copied again and
// again makes four times as much.
func TestWorkIsLinear(t *testing.T) {
	g := mustNew(t, chat.DefaultGuard())
	for _, piece := range []string{"-a", "-abc", "--aa", "a", "a=b"} {
		var args [2][]shell.Arg
		for i, n := range []int{50_000, 100_000} {
			args[i] = make([]shell.Arg, n)
			for j := range args[i] {
				args[i][j].Text = piece
			}
			args[i][0].Text = "kill"
		}
		once := made(func() { g.Call(&shell.Call{Args: args[0], Home: "/h", Cwd: "/h"}) })
		twice := made(func() { g.Call(&shell.Call{Args: args[1], Home: "/h", Cwd: "/h"}) })
		expect.True(t, twice <= 3*once, "50,000 words %s make %d bytes, 100,000 make %d", piece, once, twice)
	}
}

// TestPatternsAreBounded: what custom patterns look at is bounded, however often a command
// is in another, and so is what names with wildcards may be: 77 s, of 75 KB; a command that
// is as long as may be is checked by many.
func TestPatternsAreBounded(t *testing.T) {
	cfg := chat.DefaultGuard()
	for i := range 100 {
		cfg.CustomDenyPatterns = append(cfg.CustomDenyPatterns, chat.Pattern{Text: fmt.Sprintf("^x%d$", i)})
	}
	g := mustNew(t, cfg)
	v, err := g.Command("echo "+strings.Repeat("ab ", 43_000), home)
	expect.True(t, !v.Denied && err == nil, "a long command: %+v, %v", v, err)
	if v, err := g.Command("x7;"+strings.Repeat("xargs ", 120)+strings.Repeat("ab ", 2000), home); !v.Denied || err != nil {
		t.Errorf("what comes before is checked: %+v, %v", v, err)
	}
	if v, err := g.Command(strings.Repeat("xargs ", 120)+strings.Repeat("ab ", 2000), home); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "times patterns") {
		t.Errorf("120 commands of 2,000 words: %+v, %v", v, err)
	}
	plain := mustNew(t, chat.DefaultGuard())
	long := "a='*" + strings.Repeat("[a]", 5000) + "';"
	v, err = plain.Command(long+"$a", home)
	expect.True(t, !v.Denied && err == nil, "a name with many wildcards: %+v, %v", v, err)
	if v, err := plain.Command(long+strings.Repeat("$a;", 200), home); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "times patterns and programs") {
		t.Errorf("200 names with many wildcards: %+v, %v", v, err)
	}
	if v, err := plain.Command(strings.Repeat("l?;", 3000)+"/usr/bin/sud*", home); !v.Denied || err != nil {
		t.Errorf("many short names: %+v, %v", v, err)
	}
	v, err = plain.Command(strings.Repeat("xargs ", 120)+strings.Repeat("ab ", 2000), home)
	expect.True(t, !v.Denied && err == nil, "without patterns: %+v, %v", v, err)
}
