package tmux

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestMarks(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b]133;A\a$ \x1b]133;B\a":                                "A B",
		"x\x1b]133;C\x1b\\out\x1b]133;D;3\x1b\\":                    "C D3",
		"\x1b]133;D;0;aid=1\a\x1b]133;D\a":                          "D0 D",
		"\x1b]133;D;256\a\x1b]133;D;-1\a":                           "D D",
		"\x1b]133;A;k=s\a> \x1b]133;B\a\x1b]133;D;k=s\a":            "A+ B D",
		"\x1b\x1b]133;A\a":                                          "A",
		"\x1b]133;A\x1b]133;B\a":                                    "A B",
		"\x1b]13\x1b]133;B\a":                                       "B",
		"\x1b]133;\a\x1b]133;Z\a\x1b]133;AA\a":                      "",
		"\x1b]133;D;1\n\a\x1b]2;133;D;0\a]133;A\a":                  "",
		"\x1b]133;A" + strings.Repeat("x", 1<<16):                   "",
		"\x1b]133;A;" + strings.Repeat("x", 200) + "\a\x1b]133;B\a": "B",
	} {
		expect.Equal(t, spell((&Marks{}).Read([]byte(in))), want, "%.60q has the marks", in)
	}
}

func spell(marks []Mark) string {
	var all []string
	for _, m := range marks {
		s := string(m.Kind)
		if m.HasExit {
			s += fmt.Sprint(m.Exit)
		}
		if m.More {
			s += "+"
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

// FuzzMarks: the marks do not depend on where the pieces are cut, and Marks holds few bytes.
func FuzzMarks(f *testing.F) {
	f.Add("\x1b]133;A\a$ \x1b]133;B\a\x1b]133;D;7\x1b\\", uint8(3))
	f.Fuzz(func(t *testing.T, in string, step uint8) {
		whole := spell((&Marks{}).Read([]byte(in)))
		var m Marks
		var got []Mark
		for n := int(step%7) + 1; len(in) > 0; in = in[min(n, len(in)):] {
			got = append(got, m.Read([]byte(in[:min(n, len(in))]))...)
			must.True(t, len(m.held) <= longestMark, "%d bytes are held", len(m.held))
		}
		must.True(t, spell(got) == whole, "in pieces %q, in one %q", spell(got), whole)
	})
}
