package tmux

import (
	"strings"
	"testing"
	"unicode"

	"github.com/chatd/chatd/test/expect"
)

func TestTypeable(t *testing.T) {
	for in, want := range map[string]string{
		"हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3 👩\u200d💻 \u200fعربي": "हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3 👩\u200d💻 \u200fعربي",
		"a\r\nb\rc\nd\te":                "a\nb\nc\nd\te",
		"echo a\x1b[201~\rtouch pwned\r": "echo a\ntouch pwned\n",
		"a\u009b201~b":                   "ab",
		"\x1b[20\x1b[201~1~":             "[201~",
		"\x1b\x1b[201~[201~":             "[201~",
		"\x1b[1;31mred\x1b[0m":           "red",
		"\x03\x04\x1a\x7f\x1b":           "",
		"\x1bOA\x1b]0;title\atext":       "OA]0;titletext",
		"\U000E0067 \ue0b0 \ufffd":       "\U000E0067 \ue0b0 \ufffd",
	} {
		expect.Equal(t, Typeable(in), want, "%q is typed as", in)
	}
}

// FuzzTypeable: whatever is in a text, no control character is left that begins a key or ends a
// paste, and a text without any is typed unchanged.
func FuzzTypeable(f *testing.F) {
	f.Add("a\x1b[20\x1b[201~1~\u009b\r")
	f.Add("plain\n\ttext")
	f.Fuzz(func(t *testing.T, text string) {
		got := Typeable(text)
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("%q is typed as %q", text, got)
			}
		}
		if !strings.ContainsFunc(text, unicode.IsControl) && got != strings.ToValidUTF8(text, "\ufffd") && got != text {
			t.Errorf("%q is typed as %q", text, got)
		}
	})
}
