package printer

import (
	"bytes"
	"strings"
	"testing"
)

// TestEscapingInPieces: wherever content is cut, it comes out as if it were not.
func TestEscapingInPieces(t *testing.T) {
	text := "a\x1b[31mé🦀\u202e\xff\xf0\x9f\x80x\xe2\x82"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := &escaping{w: &out}
		for at := 0; at < len(text); at += size {
			if _, err := w.Write([]byte(text[at:min(at+size, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || out.String() != Escape(text) {
			t.Errorf("in pieces of %d: %q, want %q", size, out.String(), Escape(text))
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 🦀\n\t":   "plain é 🦀\n\t",
		"a\x1b[31mb":      `a\x1b[31mb`,
		"\x9b31m":         `\x9b31m`,
		"\u009b31m":       `\u009b31m`,
		"a\rb\x00\x7f":    `a\rb\x00\u007f`,
		"\u202egnp.exe":   `\u202egnp.exe`,
		"\xff\xfe":        `\xff\xfe`,
		"\u2028\ufeff":    `\u2028\ufeff`,
		"\U000e0001 tags": `\U000e0001 tags`,
	} {
		if got := Escape(in); got != strings.ReplaceAll(want, `\u007f`, `\x7f`) && got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a\x1b]0;x\a", "\xc2\x9b", "\xff", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := Escape(s)
		for _, r := range out {
			control := r < 0x20 || r >= 0x7f && r < 0xa0
			broken := r == 0xfffd && !strings.ContainsRune(s, r)
			if r != '\n' && r != '\t' && (control || broken) {
				t.Errorf("%q is left in Escape(%q)", r, s)
			}
		}
		if Escape(out) != out {
			t.Errorf("escaping twice differs: %q", s)
		}
	})
}
