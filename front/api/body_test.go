package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestDepthIsBounded(t *testing.T) {
	for depth, ok := range map[int]bool{1: true, maxDepth: true, maxDepth + 1: false, 100000: false} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		p := checkJSON([]byte(text))
		if (p == nil) != ok || !ok && !strings.Contains(p.Detail, "nested deeper than") {
			t.Errorf("depth %d: %v", depth, p)
		}
	}
}

// FuzzCheckJSON: text that checkJSON accepts decodes, has no duplicate key, and means the same
// after it is written again.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":{"a":[1,"x\"y"]}}`, `{"a":1,"a":2}`, `"\ud83e\udd80"`, `"\ud83e"`, `{"\u0061":1,"a":2}`,
		`{"a":1}{}`, strings.Repeat("[", 100), `"\`, `"\u`, `"\u12`, `{"`, `]]}}`, "\xff", `{"a":"\\","b":"\\\""}`, `{:,"a"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkJSON(b) != nil {
			return
		}
		var v any
		err := json.Unmarshal(b, &v)
		must.True(t, err == nil && utf8.Valid(b), "let through: %q: %v", b, err)
		if n := keysWritten(b); n != keysKept(v) {
			t.Errorf("%d keys written, %d kept: %q", n, keysKept(v), b)
		}
		if !strings.Contains(string(b), "\ufffd") && !strings.Contains(strings.ToLower(string(b)), `\ufffd`) && strings.ContainsRune(mustWrite(t, v), '\ufffd') {
			t.Errorf("text was replaced: %q", b)
		}
	})
}

func mustWrite(t *testing.T, v any) string {
	b := must.Get(json.Marshal(v))(t)
	return string(b)
}

// keysWritten counts the colons outside strings: in JSON each follows a key.
func keysWritten(b []byte) int {
	colons, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '\\' && inString:
			i++
		case b[i] == '"':
			inString = !inString
		case b[i] == ':' && !inString:
			colons++
		}
	}
	return colons
}

func keysKept(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += keysKept(e)
		}
	case []any:
		for _, e := range v {
			n += keysKept(e)
		}
	}
	return n
}

// deadlines records the deadlines that are set on a connection.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// TestCutBody: closing a body that was read to its end leaves the connection alone. net/http takes
// a past deadline there for a client that went away, and in one of some hundred uploads it refuses
// every later request of the connection.
func TestCutBody(t *testing.T) {
	for _, c := range []struct {
		name string
		read int64
		cut  bool
	}{
		{"all of it", 8, false},
		{"a part of it", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &deadlines{ResponseWriter: httptest.NewRecorder()}
			up := &upload{s: &Server{opt: ServerOptions{MaxFile: 8}}, body: cutBody{r: strings.NewReader("abcd"), c: http.NewResponseController(w)}}
			must.Do(t, expect.Err(io.Copy(io.Discard, io.LimitReader(up, c.read))))
			w.set = nil
			if whole := up.stop(); whole == c.cut || up.body.cut() != c.cut || (len(w.set) > 0) != c.cut {
				t.Errorf("whole %v, cut %v, deadlines %v", whole, up.body.cut(), w.set)
			}
			_, err := up.Read(make([]byte, 1))
			expect.True(t, errors.Is(err, os.ErrClosed), "a later Read: %v", err)
		})
	}
}
