package printer

import (
	"io"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
)

// LogWriter writes what a chat's terminal printed: on a terminal plain text, elsewhere every byte.
func LogWriter(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return termsafe.NewWriter(w, termsafe.Plain)
	}
	return w
}

// Screen is what a chat's terminal shows; with styles colours stay, and are put back at the end.
func Screen(w io.Writer, s chat.Screen, styles bool) error {
	text := s.Text
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if styles {
		return Write(w, termsafe.String(text, termsafe.Styled)+"\x1b[m")
	}
	return ChatText(w, text)
}

// Typed is what came after an input: as text, or every byte that was printed.
func Typed(w io.Writer, got chat.Typed, raw bool) error {
	if raw {
		_, err := LogWriter(w).Write(got.Bytes())
		return failed(err)
	}
	if got.Plain == "" {
		return nil
	}
	return ChatText(w, strings.TrimSuffix(got.Plain, "\n")+"\n")
}

// Rendered is the text that a terminal would show after all that a chat's terminal printed.
func Rendered(all []byte) string {
	text := termsafe.Render(all, chat.TerminalRows, chat.TerminalCols)
	if text != "" {
		text += "\n"
	}
	return text
}
