package shell

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestWorkIsLinear: a word of twice as many parts makes twice as much. Parts that are put
// behind each other one by one make four times as much.
func TestWorkIsLinear(t *testing.T) {
	for _, c := range []struct{ head, part, tail string }{
		{"echo ", "'a'", ""}, {"echo ", `"a"`, ""}, {"echo ", "$'a'", ""}, {"echo ", "a'b'", ""}, {"echo ", "$a", ""}, {"a=b;echo ", "$a", ""},
		{`echo "`, "$a", `"`}, {`a=b;echo "`, "c${a}", `"`}, {"echo ", "$(a)", ""}, {"echo", " a", ""}, {"ls /", "[a]", ""}, {"ls /", "*a", ""},
		{"sh -c '", "a;", "'"}, {"cat <<E\n", "a\n", "E\n"},
	} {
		var made [2]uint64
		for i, n := range []int{4000, 8000} {
			command := c.head + strings.Repeat(c.part, n) + c.tail
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Calls(command, "/home/u", "/home/u")
			must.True(t, err == nil, "%.20q: %v", command, err)
			runtime.ReadMemStats(&after)
			made[i] = after.TotalAlloc - before.TotalAlloc
		}
		expect.True(t, made[1] <= 3*made[0],
			"%s%s…: 4,000 parts make %d bytes, 8,000 make %d", c.head, c.part, made[0], made[1])
	}
}

// TestValuesAreBounded: what is put together of values that are long is bounded, though
// none of it becomes a word.
func TestValuesAreBounded(t *testing.T) {
	for _, command := range []string{
		"a=" + strings.Repeat("x", 60_000) + `;echo "` + strings.Repeat("$a", 30_000) + `"`,
		"a=" + strings.Repeat("x", 60_000) + ";echo " + strings.Repeat("$a", 30_000),
	} {
		if _, err := Calls(command, "/home/u", "/home/u"); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "parts of words") {
			t.Errorf("%.20q: %v", command, err)
		}
	}
}

// TestPipelines: each part of a long pipeline is told the programs before it, and of what
// ran no more is gone through for it than it may be told.
func TestPipelines(t *testing.T) {
	x := newExtractor()
	x.gather = true
	must.Do(t, x.script(newShell("/home/u", "/home/u"), strings.Repeat("a|", 5000)+"b|c"))
	last := x.calls[len(x.calls)-1]
	expect.True(t, len(x.ran) == 3 && strings.Join(last.From, " ") == "a b",
		"%q ran, the last reads from %q", x.ran, last.From)
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "p%d|", i)
	}
	w, err := Calls(many.String()+"sh", "/home/u", "/home/u")
	expect.True(t, err == nil && len(w.Calls[3000].From) == maxNames && w.Calls[3000].From[0] == "p0",
		"%d names, %v", len(w.Calls[3000].From), err)
	w, err = Calls("a $(b|c $(d)) `e`|f $(g)", "/home/u", "/home/u")
	got := ""
	for _, c := range w.Calls {
		got += fmt.Sprintf("%s%s%s", c.Args[0].Text, c.From, c.Within)
	}
	want := "b[][]d[b][]c[b][d]e[][]a[][b d c e]g[b d c e a][]f[b d c e a][g]"
	expect.True(t, got == want && err == nil, "%s, %v, want %s", got, err, want)
}

// TestStepsAreBounded: words with wildcards, and names that repeat what rules look for, are
// compared with the rules within a bound, whatever words and rules there are. Each of the
// bad ones took minutes, or hours.
func TestStepsAreBounded(t *testing.T) {
	var rules, names strings.Builder
	rules.WriteString("access:\n  deny:\n")
	for i := range 500 {
		fmt.Fprintf(&rules, "    - '**/*.k%d*y*z'\n    - '/\\.k%d-x$/'\n", i, i)
		fmt.Fprintf(&names, ".k%d-x.k%dy", i, i)
	}
	rs := ruleset(t, rules.String(), "/home/u", "/home/u")
	var globs strings.Builder
	for i := range 8000 {
		fmt.Fprintf(&globs, " /a%d*b", i)
	}
	for command, want := range map[string]string{
		"ls /" + strings.Repeat("[a]", 20_000): "steps of", "ls /" + strings.Repeat("*a", 30_000): "steps of", "cat" + globs.String(): "steps of",
		"cat /" + strings.Repeat(".k7-y", 10_000): "", "ls src/*.go lib/*/[a-z]*.c": "", "cat" + strings.Repeat(" /etc/passwd", 1000): "",
	} {
		v, err := CheckCommand(rs, command)
		if want == "" && (err != nil || v.Denied()) || want != "" && (!errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %s, %v, want %s", command, v.Effect, err, want)
		}
	}
	v, err := CheckCommand(rs, "cat /x.k5-x /"+strings.Repeat(names.String(), 10))
	expect.True(t, err == nil && v.Denied(), "what is denied before is denied: %+v, %v", v, err)
}
