package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// JSON writes v as one JSON value in which no control byte is left, also not
// the ones that encoding/json leaves (DEL, C1, bidirectional).
func JSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	return writeJSON(w, b, err)
}

// JSONLine is [JSON] in one line.
func JSONLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	return writeJSON(w, b, err)
}

func writeJSON(w io.Writer, b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("cannot write JSON: %w", err)
	}
	return Write(w, printable(b))
}

// printable is JSON, and a newline, with everything escaped that is not printable.
func printable(b []byte) string {
	var out bytes.Buffer
	for _, r := range string(b) {
		if r == '\n' || r < 0x7f || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, u)
		}
	}
	out.WriteByte('\n')
	return out.String()
}
