package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// smallPieces records the size of each write.
type smallPieces struct {
	bytes.Buffer
	max int
}

func (p *smallPieces) Write(b []byte) (int, error) {
	p.max = max(p.max, len(b))
	return p.Buffer.Write(b)
}

// same compares the encoding of v with huma's.
func same[T any](t *testing.T, v T) *smallPieces {
	t.Helper()
	var p smallPieces
	var want bytes.Buffer
	must.Do(t, writeJSON(&p, v))
	must.Do(t, huma.DefaultJSONFormat.Marshal(&want, v))
	expect.True(t, bytes.Equal(p.Bytes(), want.Bytes()), "%.200q, want %.200q", p.String(), want.String())
	return &p
}

// TestRunJSON: a run's answer is encoded as any other, in small writes whatever it printed.
func TestRunJSON(t *testing.T) {
	for _, text := range []string{"", "a", `"stdout":"","stderr":""`, `\`, "\x00\x1b<&>\u2028\"", "\xff\xc3", strings.Repeat("\x01", 3*textPiece), strings.Repeat("€", textPiece), strings.Repeat("x🦀", textPiece), strings.Repeat("\xff", 2*textPiece+1)} {
		for _, r := range []chat.RunResult{{Stdout: text}, {Stderr: text}, {Stdout: text, Stderr: text, Exit: 7, Signal: `"stdout":"","stderr":""`}} {
			p := same(t, r)
			expect.True(t, p.max <= 6*textPiece, "%.20q: %d bytes are written at once", text, p.max)
			same(t, chat.Run{ID: "run", Command: chat.Quote(text), Result: &r})
			if kept := r.Stdout + r.Stderr; text != "" && !strings.Contains(kept, text) {
				t.Errorf("%.20q: the result itself was changed", text)
			}
		}
	}
	same(t, chat.Run{ID: "run"})
	same(t, chat.Runs{Runs: []chat.Run{{ID: "run", Result: &chat.RunResult{}}}})
}

// FuzzRunJSON: any output of a chat is encoded as huma encodes it.
func FuzzRunJSON(f *testing.F) {
	f.Add("a", `"stdout":"","stderr":""`)
	f.Add("\xff\x00", "\u2028€")
	f.Fuzz(func(t *testing.T, stdout, stderr string) {
		same(t, chat.Run{Command: stderr, Result: &chat.RunResult{Stdout: stdout, Stderr: stderr}})
	})
}
