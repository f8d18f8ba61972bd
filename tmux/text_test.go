package tmux

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/internal/termsafe"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 🦀\r\n\ta\bb\x7f\x00\v\fc":        "plain é 🦀\n\tabc",
		"\x1b[1;31mred\x1b[m\x1b[38:2::1:2:3mx":   "redx",
		"\x1b[2J\x1b[10;20Hx\x1b[?1049hy\x1b[ qz": "xyz",
		"a\x1b[5\nC\tb":                         "a\n\tb", // a control inside a sequence acts
		"a\x1b7b\x1b(0c\x1b#8d\x1b %Ge":         "abcde",
		"a\x1b\x00\x7f[1mb":                     "ab",
		"a\x1b]0;title\ab\x1b]2;t\x1b\\c":       "abc",
		"a\x1b]0;x\n\ty\ab":                     "ab",
		"a\x1b]0;\u2733 title\ab":               "ab",  // ✳ has the byte 0x9c
		"a\x1bPq#1\a~\x1b\\b\x1bX\a\x1b\\c":     "abc", // BEL ends OSC alone
		"a\x1b^x\x1b\\b\x1b_Gf=1;x\x1b\\c":      "abc",
		"a\x1b]0;x\x1b[31mb":                    "ab", // ESC ends a string
		"a\x1b]0;x\x18b\x1b[1\x1ac":             "abc",
		"a\x1b[\xc3\xa91mb\x1b\x9b[1mc":         "abc",
		"a\x9b31mb\xff\xc3(":                    "a\ufffd31mb\ufffd\ufffd(",
		"a\u009b\u202eb\u200dc\u00a0d\ue0b0e":   "ab\u200dc\u00a0d\ue0b0e",
		"a\x1b]0;" + strings.Repeat("x", 1<<16): "a",
		"a\x1b[" + strings.Repeat("1;", 1<<16):  "a",
		"a\xe2\x82":                             "a", // its end may come
	} {
		expect.Equal(t, string((&Text{}).Append(nil, []byte(in))), want, "the text of %.60q", in)
	}
	expect.Equal(t, string((&Text{}).Append([]byte("before "), []byte("after"))), "before after",
		"appended to a text")
}

// In two places package termsafe follows the table of charmbracelet/x/ansi, and Text the VT500
// and tmux.
var differ = map[string]struct{ text, display string }{
	// At once after ESC P, display takes ESC for a part of the string.
	"\x1bP\x1b\\after\x1b[mx": {"afterx", "x"},
	// display ends a control sequence at a parameter behind an intermediate byte.
	"\x1b[1 2qafter": {"after", "qafter"},
}

var differs = regexp.MustCompile(`\x1b[^ -~]*P[^ -~]*\x1b|\x1b[^ -~]*\[[^@-~]*[ -/][^@-~]*[0-?]`)

// TestTextDiffers: the differences from display are these, and FuzzText leaves them out.
func TestTextDiffers(t *testing.T) {
	for in, want := range differ {
		expect.Equal(t, string((&Text{}).Append(nil, []byte(in))), want.text, "the text of %q", in)
		if got := termsafe.String(in, termsafe.Plain); got != want.display {
			t.Errorf("display has %q for %q, want %q; take the row out if it agrees with Text",
				got, in, want.display)
		}
		expect.True(t, differs.MatchString(in), "FuzzText does not leave %q out", in)
	}
}

// replaced is more than one U+FFFD: for a character that is broken off display has one, and Text
// one for each byte.
var replaced = regexp.MustCompile("\ufffd+")

// FuzzText: in pieces or in one, it is the text that package termsafe has for a plain terminal, it
// is text, and little is held.
func FuzzText(f *testing.F) {
	for _, in := range []string{
		"é\x1b[1;31mx\r\n\x1b[?25l", "\x1b]0;t\ax\x1b]8;;u\x1b\\l", "\x1bPq\a~\x1b\\x\x1b_y\x18z",
		"\xe2\x82\x1b[m\xf0\x9f", "a\x1b(0\x1b#8\x1b %G", "\x1b\x00[\x7f1\n;\tm", "\x9b1m\xc2\x9b\u202e\u00ad",
		"\x1b[\xc31m\x1b\xa9]x\xff\ay", "\x1b\x1b]\x1b[3 q\x1b[>1u\x1b[!p", "\x1b[12\x1a;\x1bXs\x1bcz",
		"\x1b]0;\u2733 t\ax\x1bPq\xe2\x9c\x1b\\y", "\x1b]\x9cx\u009c\xc0\x9c\az",
	} {
		f.Add([]byte(in), uint8(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		if differs.Match(in) {
			t.Skip("display reads it otherwise: see TestTextDiffers")
		}
		var text Text
		var got []byte
		var want bytes.Buffer
		w := termsafe.NewWriter(&want, termsafe.Plain)
		whole := string((&Text{}).Append(nil, in))
		for n := int(step%7) + 1; len(in) > 0; in = in[min(n, len(in)):] {
			piece := bytes.Clone(in[:min(n, len(in))])
			_, _ = w.Write(piece)
			got = text.Append(got, piece)
			clear(piece) // it is the caller's again
			must.True(t, len(text.held) < utf8.UTFMax, "%d bytes are held", len(text.held))
		}
		must.True(t, string(got) == whole && utf8.Valid(got), "in pieces %q, in one %q", got, whole)
		one := replaced.ReplaceAllString(string(got), "\ufffd")
		other := replaced.ReplaceAllString(want.String(), "\ufffd")
		must.True(t, one == other, "Text has %q, display %q", one, other)
	})
}
