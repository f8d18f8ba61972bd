package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// jsonFormat is huma's JSON, except for the output of a run. A chat chooses those bytes, JSON may
// make each six bytes long, and encoding/json would hold them all several times.
var jsonFormat = huma.Format{Marshal: writeJSON, Unmarshal: huma.DefaultJSONFormat.Unmarshal}

func writeJSON(w io.Writer, v any) error {
	var stdout, stderr string
	switch r := v.(type) {
	case chat.RunResult:
		stdout, stderr, r.Stdout, r.Stderr = r.Stdout, r.Stderr, "", ""
		v = r
	case chat.Run:
		if r.Result != nil {
			res := *r.Result
			stdout, stderr, res.Stdout, res.Stderr = res.Stdout, res.Stderr, "", ""
			r.Result = &res
		}
		v = r
	}
	if stdout == "" && stderr == "" {
		return huma.DefaultJSONFormat.Marshal(w, v)
	}
	if a, ok := w.(interface{ expect(int) }); ok {
		a.expect(len(stdout) + len(stderr))
	}
	return writeOutput(w, v, stdout, stderr)
}

// writeOutput writes v with two texts in the place of its empty ones.
func writeOutput(w io.Writer, v any, stdout, stderr string) error {
	var b bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&b, v); err != nil {
		return err
	}
	// No text can look like this: in a text a quote has a backslash before it.
	before, after, found := bytes.Cut(b.Bytes(), []byte(`"stdout":"","stderr":""`))
	if !found {
		return fmt.Errorf("cannot write the answer of a run: it has no streams")
	}
	out := bufio.NewWriterSize(w, textPiece) // keeps the first error until Flush
	_, _ = out.Write(before)
	for i, part := range []string{`"stdout":`, `,"stderr":`} {
		_, _ = out.WriteString(part)
		if err := writeText(out, []string{stdout, stderr}[i]); err != nil {
			return err
		}
	}
	_, _ = out.Write(after)
	return out.Flush()
}

// textPiece is how much of a text one write takes, in bytes.
const textPiece = 32 << 10

// writeText writes a text in JSON in pieces that do not split a character.
func writeText(w *bufio.Writer, s string) error {
	var b bytes.Buffer
	_ = w.WriteByte('"')
	for len(s) > 0 {
		piece := s[:min(len(s), textPiece)]
		if len(piece) < len(s) {
			piece = s[:chat.WholeRunes([]byte(piece))]
		}
		b.Reset()
		if err := huma.DefaultJSONFormat.Marshal(&b, piece); err != nil {
			return err
		}
		_, _ = w.Write(b.Bytes()[1 : b.Len()-2]) // without the quotes and the end of the line
		s = s[len(piece):]
	}
	return w.WriteByte('"')
}
