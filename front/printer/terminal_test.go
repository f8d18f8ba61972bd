package printer

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestTerminalText: colours pass where they are asked for, a file gets every byte, and text ends
// with a newline.
func TestTerminalText(t *testing.T) {
	const red = "\x1b[31mred\x1b[m\x1b]0;title\a"
	screen := func(text string, styles bool) string {
		return written(func(w io.Writer) error { return Screen(w, chat.Screen{Text: text}, styles) })
	}
	typed := func(got chat.Typed, raw bool) string {
		return written(func(w io.Writer) error { return Typed(w, got, raw) })
	}
	for _, c := range []struct{ name, got, want string }{
		{"styles", screen(red, true), "\x1b[31mred\x1b[m\n\x1b[m"},
		{"a file", screen(red, false), red + "\n"},
		{"no screen", screen("", false), ""},
		{"typed", typed(chat.Typed{Plain: "a\n", Log: chat.Log{Text: red}}, false), "a\n"},
		{"nothing typed", typed(chat.Typed{Log: chat.Log{Text: red}}, false), ""},
		{"raw", typed(chat.Typed{Plain: "a", Log: chat.Log{Text: red}}, true), red},
		{"rendered", Rendered([]byte("ab\rc\r\n" + red)), "cb\nred\n"},
		{"nothing rendered", Rendered(nil), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

// TestJSON: nothing that a terminal obeys is left in JSON, and a program reads what was meant.
func TestJSON(t *testing.T) {
	var b strings.Builder
	must.Do(t, JSONLine(&b, "\x1b\x7f\u009b\u202e\U000e0001é"))
	if want := `"\u001b\u007f\u009b\u202e\udb40\udc01é"` + "\n"; b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errNoRoom }

var errNoRoom = errors.New("no room")

// TestFailed: no answer is lost without an error that says so.
func TestFailed(t *testing.T) {
	w := ChatWriter(full{})
	_, err := w.Write([]byte("a"))
	for name, err := range map[string]error{
		"text": Write(full{}, "a"), "schedule": Schedule(full{}, chat.Schedule{}), "json": JSON(full{}, 1),
		"chat's text": ChatText(full{}, "a"), "pieces": err, "raw": Typed(full{}, chat.Typed{}, true),
	} {
		if !errors.Is(err, errNoRoom) || !strings.HasPrefix(err.Error(),
			"cannot write the output: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

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
