package printer

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// Escape makes text from a chat or a caller safe for a terminal: what is not
// printable (control bytes, C1 and bidirectional controls, broken UTF-8) becomes
// its Go escape; newline and tab stay.
func Escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// Cell is [Escape] for a line or a cell of a table: newline and tab go too.
func Cell(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Escape(s))
}

// IsTerminal takes every character device for a terminal, which errs towards
// escaping.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

// ChatText writes what a chat printed: as it is to a file or a pipe, escaped
// to a terminal.
func ChatText(w io.Writer, s string) error {
	if IsTerminal(w) {
		s = Escape(s)
	}
	return Write(w, s)
}

// ChatWriter is [ChatText] for content that comes in pieces. Close writes what was kept back.
func ChatWriter(w io.Writer) io.WriteCloser {
	if IsTerminal(w) {
		return &escaping{w: w}
	}
	return passing{w}
}

// passing changes nothing.
type passing struct{ io.Writer }

// Write passes b on.
func (p passing) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	return n, failed(err)
}

// Close has nothing left to write.
func (p passing) Close() error { return nil }

// escaping keeps back the bytes of a character whose end has not come.
type escaping struct {
	w    io.Writer
	left []byte
}

// Write escapes all whole characters of p, and of what was kept back.
func (e *escaping) Write(p []byte) (int, error) {
	text := append(e.left, p...)
	end := chat.WholeRunes(text)
	e.left = append([]byte(nil), text[end:]...)
	return len(p), Write(e.w, Escape(string(text[:end])))
}

// Close writes what was kept back: its end will not come.
func (e *escaping) Close() error { return Write(e.w, Escape(string(e.left))) }

// Write writes text in one piece.
func Write(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return failed(err)
}

// failed names what an error of a writer stopped.
func failed(err error) error {
	if err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}
