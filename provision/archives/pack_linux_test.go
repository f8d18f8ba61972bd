package archives

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPackingDiffers: what is read again must be what was packed, by the key of the check where
// there are recipients; otherwise there is no archive.
func TestPackingDiffers(t *testing.T) {
	must.Root(t, "archives are root's")
	good := Result{Entries: 1, Bytes: 2, SHA256: hashOf([]byte("rest")), CheckIdentity: "key"}
	for name, c := range map[string]struct {
		recipients string
		again      Result
		text       string
		ok         bool
	}{
		"the same":      {"", good, "rest", true},
		"encrypted":     {"age1", good, "rest", true},
		"another hash":  {"", Result{Entries: 1, Bytes: 2, SHA256: "x"}, "rest", false},
		"fewer entries": {"", Result{Entries: 0, Bytes: 2, SHA256: good.SHA256}, "rest", false},
		"fewer bytes":   {"", Result{Entries: 1, Bytes: 1, SHA256: good.SHA256}, "rest", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, done := packing(t, c.recipients, good, c.again, c.text)
			_, err := p.Home(t.Context(), "/home")
			expect.True(t, (err == nil) == c.ok && (err == nil || errors.Is(err, chat.ErrConflict)),
				"home: %v", err)
			expect.True(t, done("check", c.recipients), "it was not checked by the key of the check")
		})
	}
	p, done := packing(t, "age1", good, good, "best")
	expect.Is(t, p.Rest(t.Context(), []byte("rest")), chat.ErrConflict, "another rest")
	expect.True(t, done("open", "age1"), "it was not opened by the key of the check")
	expect.Is(t, p.Rest(t.Context(), make([]byte, maxRest+1)), chat.ErrInvalid, "too much")
}

// packing writes "stream" and reads it again as again, or as text. done reports whether verb was
// done, with the key in front of the stream where there are recipients.
func packing(
	t *testing.T, recipients string, first, again Result, text string,
) (p Packing, done func(verb, recipients string) bool) {
	s := must.Get(Open(Options{Dir: filepath.Join(t.TempDir(), "a")}))(t)
	t.Cleanup(func() { s.Close() })
	draft := must.Get(s.Begin("0123456789abcdef-20261125T160000Z"))(t)
	if recipients == "" {
		first.CheckIdentity = "" // there is none
	}
	got := map[string]string{}
	p = Packing{Draft: draft, Recipients: recipients}
	p.Do = func(_ context.Context, _ string, task Task) (Result, error) {
		in, err := io.ReadAll(task.In)
		got[task.Args[0]] = string(in)
		switch {
		case err != nil:
			return Result{}, err
		case task.Args[0] == "pack" || task.Args[0] == "seal":
			return first, task.Out(strings.NewReader("stream"))
		case task.Out != nil:
			return again, task.Out(strings.NewReader(text))
		}
		return again, nil
	}
	return p, func(verb, recipients string) bool {
		if recipients == "" {
			return got[verb] == "stream"
		}
		return got[verb] == first.CheckIdentity+"\x00stream"
	}
}
