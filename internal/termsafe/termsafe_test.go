package termsafe

import (
	"bytes"
	"errors"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFull(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 🦀\r\n\t":                 "plain é 🦀\r\n\t",
		"👩\u200d💻 \u00a0\ue0b0":           "👩\u200d💻 \u00a0\ue0b0",
		"\x1b[1;31mred\x1b[m":             "\x1b[1;31mred\x1b[m",
		"\x1b[38:2::1:2:3mx":              "\x1b[38:2::1:2:3mx",
		"\x1b[2J\x1b[H\x1b[10;20Hx\x1b[K": "\x1b[2J\x1b[H\x1b[10;20Hx\x1b[K",
		"\x1b[?1049h\x1b[?25l\x1b[?1;7h":  "\x1b[?1049h\x1b[?25l\x1b[?1;7h",
		"\x1b[2;10r\x1b[3 q\x1b7\x1b8":    "\x1b[2;10r\x1b[3 q\x1b7\x1b8",
		"\x1b(0lqk\x1b(B\x0e\x0f\x1b=":    "\x1b(0lqk\x1b(B\x0e\x0f\x1b=",
		"a\x1b[5\rC":                      "a\r\x1b[5C", // a control inside a sequence acts at once
		// Nothing of these reaches a terminal.
		"a\x1b]52;c;aGk=\ab":                               "ab", // clipboard
		"a\x1b]0;title\x1b\\b":                             "ab",
		"a\x1b]8;;http://x\x1b\\l\x1b]8;;\x1b\\b":          "alb", // links that say one thing and lead to another
		"a\x1b]4;1;?\ab\x1b]10;?\x1b\\":                    "ab",  // colours, asked for
		"a\x1bP$qm\x1b\\b":                                 "ab",  // DECRQSS
		"a\x1bPtmux;\x1b\x1b]52;c;x\a\x1b\\b":              "ab",
		"a\x1bP+q544e\x1b\\b":                              "ab",
		"a\x1b_Gf=100;x\x1b\\b":                            "ab", // pictures, applications
		"a\x1b^x\x1b\\b\x1bXy\x1b\\c":                      "abc",
		"a\x1b[cb\x1b[>cc\x1b[=c":                          "abc", // who are you
		"a\x1b[6nb\x1b[?6nc\x1b[5n":                        "abc", // where are you
		"a\x1b[>qb\x1bZ":                                   "ab",
		"a\x05b\ac":                                        "abc", // answerback, bell
		"a\x1b[21tb\x1b[22;0;0tc":                          "abc", // title, reported and saved
		"a\x1b[>4;2mb\x1b[>1uc\x1b[=1;1u":                  "abc", // what keys send
		"a\x1b[?1000hb\x1b[?1006;25hc\x1b[?1004h":          "abc",
		"a\x1b[?5hb\x1b[?3hc\x1b[2h":                       "abc", // reverse video, 132 columns, locked keyboard
		"a\x1b[ib\x1b[?5ic\x1b[4i":                         "abc", // printer
		"a\x1bcb\x1b[!pc\x1b#8":                            "abc", // reset, test picture
		"a\x1b[3Jb\x1b[2;3J":                               "ab",
		"a\x1b[999999999bb\x1b[99999L":                     "ab",
		"a\x1b[1;2;3;4;5Tb":                                "ab", // mouse
		"a\x1b[; qb":                                       "ab", // the shape of the cursor has one parameter
		"a\x1b[1;2sb\x1b[0$yc\x1b[1*x":                     "abc",
		"a\x1b[1\"qb\x1b[?1$pc":                            "abc",
		"a\x1b%Gb\x1b Fc\x1b(Ad":                           "abcd", // other encodings
		"a\x1b[1::2Hb":                                     "ab",
		"a\x1b[\xc3\xa91mb":                                "ab",
		"a\u009b31mb\u009d0;x\u009c":                       "a31mb0;x", // C1 as characters
		"a\x9b31mb":                                        "a\ufffd31mb",
		"a\xff\xc3(\xe2\x82b":                              "a\ufffd\ufffd(\ufffdb",
		"a\u202eb\u2066c\u2028d\u00ade":                    "abcde",
		"a\x7fb\x00\x01\x11\x13":                           "ab",
		"a\x1b]52;c;" + strings.Repeat("x", 1<<20) + "\ab": "ab",
		"a\x1b[" + strings.Repeat("1;", 1000) + "mb":       "ab",
		"a\x1b]0;x\x1b[31mb":                               "a\x1b[31mb", // ESC ends a string
		"a\x1b]0;x\x18b":                                   "ab",
		// In a string bytes from 0x80 on are of the string, whole characters or not.
		"a\x1b]0;\u2733 title\ab":                       "ab", // ✳ has the byte 0x9c
		"a\x1bPq\u2733 x\x1b\\b":                        "ab",
		"a\x1b_\u2733 x\x1b\\b":                         "ab",
		"a\x1b^\u2733 x\x1b\\b\x1bX\x9cx\x18c":          "abc",
		"a\x1b]0;\x9cx\ab\x1b]0;\u009cx\ac":             "abc", // ST in 8 bits and as a character
		"a\x1bPq\x9cx\x1b\\b\x1bP\u009cq\x1b\\c":        "abc",
		"a\x1b]0;\xe2\x9c\ab":                           "ab", // broken off by the end
		"a\x1b]0;\xe2\x1b\\b":                           "ab",
		"a\x1b]0;\xf0\x9f\x1b[31mb":                     "a\x1b[31mb",
		"a\x1b]0;\xc0\x9c\xe0\x80\x9cx\ab":              "ab", // overlong
		"a\xc0\x87\xe0\x80\x9cb":                        "a\ufffd\ufffd\ufffd\ufffd\ufffdb",
		"a\xe2\x1b[31mb":                                "a\ufffd\x1b[31mb",
		"a\x1b]0;\x9b31m\x9d0;\x90q\x18b":               "ab",
		"a\x1b]52;c;" + strings.Repeat("\u2733", 1<<16): "a", // never ended
	} {
		got := String(in, Full)
		expect.True(t, got == want, "%.60q came through as %.60q, want %q", in, got, want)
	}
}

func TestLevels(t *testing.T) {
	in := "a\x1b[1mb\x1b[2Jc\r\x1b7d\n\te\x1b[?25lf\x1b]0;x\ag\b"
	for level, want := range map[Level]string{Plain: "abcd\n\tefg", Styled: "a\x1b[1mbcd\n\tefg"} {
		got := String(in, level)
		expect.True(t, got == want, "level %d: %q, want %q", level, got, want)
	}
}

// TestPieces cuts in every place: a sequence in two writes is the same sequence.
func TestPieces(t *testing.T) {
	in := "\x1b]0;\u2733 t\aé🦀\x1b[1;31mx\x1b]52;c;aGk=\x1b\\y\x1b[?1049h\xe2\x82z\x1bPq\x1b\\"
	want := String(in, Full)
	for i := range len(in) {
		var out bytes.Buffer
		w := NewWriter(&out, Full)
		for _, p := range []string{in[:i], in[i:]} {
			if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		expect.True(t, out.String() == want, "cut at %d: %q, want %q", i, out.String(), want)
	}
}

// TestResetUndoesEachMode looks for a mode that could be left behind.
func TestResetUndoesEachMode(t *testing.T) {
	for _, m := range modes {
		expect.True(t, strings.Contains(Reset, "\x1b[?"+m+"l") || strings.Contains(Reset, "\x1b[?"+m+"h"),
			"Reset leaves mode %s", m)
	}
	got := String(Reset, Full)
	expect.True(t, got == strings.ReplaceAll(Reset, "\x18", ""), "Reset has what is not on the list: %q", got)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriteError(t *testing.T) {
	if _, err := NewWriter(brokenWriter{}, Full).Write([]byte("x")); err == nil {
		t.Error("the error of the terminal is lost")
	}
}

// harmless is everything that may come out, written down a second time.
var harmless = regexp.MustCompile(`^(?:[^\x00-\x1f\x7f-\x{9f}]|[\n\t\x08\v\f\r\x0e\x0f]|\x1b[78DEHM=>]|\x1b[()][B0]` +
	`|\x1b\[[0-9;:]*m|\x1b\[[0-9;]*[A-IZadef` + "`" + `JKX@PLMSTbgrsu]|\x1b\[\?[0-9;]+[hl]|\x1b\[4[hl]|\x1b\[[0-9]? q)*$`)

func FuzzWriter(f *testing.F) {
	for _, s := range []string{"é\x1b[1;31mx", "\x1b]52;c;x\a", "\x1bP\x1b\\", "\x9b1m\xc2\x9b", "\x1b[?1049;25h", "\xe2\x82", "\x1b[ q\x1b[4 q", "\x1b\x1b[m", "\x1b[\x90m",
		"\x1b]0;\u2733 t\ax", "\x1bPq\xe2\x9c\x1b\\x", "\x1b]\u009c\xc0\x9cx\x1b[1m"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		for level := Plain; level <= Full; level++ {
			var out bytes.Buffer
			w := NewWriter(&out, level)
			at := min(max(0, cut), len(in))
			_, _ = w.Write(in[:at])
			_, _ = w.Write(in[at:])
			got := out.String()
			whole := String(string(in), level)
			must.True(t, strings.HasPrefix(whole, got) && len(whole)-len(got) <= len("\ufffd"),
				"in two pieces %q, in one %q", got, whole)
			must.True(t, utf8.ValidString(got) && harmless.MatchString(got),
				"level %d let %q through", level, got)
			if level < Full && strings.ContainsAny(got, "\r\b\v\f\x0e\x0f") || level == Plain && strings.ContainsRune(got, esc) {
				t.Fatalf("level %d let %q through", level, got)
			}
			again := String(got, level)
			must.True(t, again == got, "%q is not what it says a second time: %q", got, again)
		}
	})
}
