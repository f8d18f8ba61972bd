package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

const (
	// maxDepth bounds the nesting of a body; the deepest that means something is 2.
	maxDepth = 16
	// drainFactor times MaxBody is how much of a refused body is read and thrown
	// away, so that an honest client gets to read why.
	drainFactor = 8
)

// readBody returns the whole body of r, or why it is refused. Reading all of it first also lets
// net/http watch for a client that goes away.
func (s *Server) readBody(
	w http.ResponseWriter, r *http.Request, held *bodyMemory,
) ([]byte, *client.Problem) {
	if r.ContentLength > s.opt.MaxBody {
		s.drain(w, r)
		return nil, s.tooLarge()
	}
	deadline := http.NewResponseController(w)
	if err := deadline.SetReadDeadline(time.Now().Add(s.opt.BodyTimeout)); err != nil {
		return nil, s.problem(r.Context(), err)
	}
	b, err := held.readAll(io.LimitReader(r.Body, s.opt.MaxBody+1))
	switch {
	case errors.Is(err, chat.ErrBusy):
		s.drain(w, r)
		return nil, s.problem(r.Context(), err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, invalid(http.StatusRequestTimeout, "",
			"cannot read the body: not all of it came within %s", s.opt.BodyTimeout)
	case err != nil:
		return nil, invalid(http.StatusBadRequest, "", "cannot read the body: %v", err)
	case int64(len(b)) > s.opt.MaxBody:
		s.drain(w, r)
		return nil, s.tooLarge()
	}
	// The deadline must not stay: net/http reads on to see the client go, and a
	// deadline that passes then would cancel a long run.
	if err := deadline.SetReadDeadline(time.Time{}); err != nil {
		return nil, s.problem(r.Context(), err)
	}
	return b, nil
}

// cutBody is a body that a client may send slowly. Close ends a Read that waits.
type cutBody struct {
	r     io.Reader
	c     *http.ResponseController
	state atomic.Int32
}

// The states of a cutBody.
const (
	bodyOpen  = iota
	bodyEnded // all of it was read
	bodyCut   // closed before
)

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		b.state.CompareAndSwap(bodyOpen, bodyEnded)
	}
	return n, err
}

// Close makes the reader stop, by a deadline in the past. After the end of the body only net/http
// reads on, to see the client go. It would take the deadline for that, and end the context of this
// and every later request of the connection.
func (b *cutBody) Close() error {
	if !b.state.CompareAndSwap(bodyOpen, bodyCut) {
		return nil
	}
	return b.c.SetReadDeadline(time.Unix(1, 0))
}

// cut reports whether Close came before the end of the body. The connection can serve no
// further request then.
func (b *cutBody) cut() bool { return b.state.Load() == bodyCut }

func (s *Server) tooLarge() *client.Problem {
	return invalid(http.StatusRequestEntityTooLarge, "", "cannot use the body: more than %d bytes",
		s.opt.MaxBody)
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	if r.Header.Get("Expect") != "" {
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opt.BodyTimeout)); err != nil {
		return
	}
	// An error does not matter here: the answer is 413 either way.
	_, _ = io.CopyN(io.Discard, r.Body, drainFactor*s.opt.MaxBody)
}

// checkType requires JSON; the form that curl -d sends by default is refused.
func checkType(r *http.Request) *client.Problem {
	got := r.Header.Get("Content-Type")
	t, params, err := mime.ParseMediaType(got)
	charset := params["charset"]
	if err != nil || t != client.JSONType && !(t == client.PatchType && r.Method == "PATCH") ||
		(charset != "" && charset != "utf-8" && charset != "UTF-8") ||
		r.Header.Get("Content-Encoding") != "" {
		return invalid(http.StatusUnsupportedMediaType, "",
			"cannot use the body: Content-Type %s: want %s, in UTF-8, without Content-Encoding",
			chat.Quote(got), client.JSONType)
	}
	return nil
}

// checkJSON accepts exactly one JSON value of bounded depth in valid UTF-8, in which no object has
// a key twice and no string has half a surrogate pair. encoding/json alone would take the last of
// two keys and put U+FFFD for broken text. Two different external ids would become one chat.
func checkJSON(b []byte) *client.Problem {
	if !utf8.Valid(b) {
		return invalid(http.StatusBadRequest, "", "cannot use the body: not valid UTF-8")
	}
	sc := scanner{b: b}
	if err := sc.walk(); err != nil {
		return err
	}
	if !json.Valid(b) {
		return invalid(http.StatusBadRequest, "", "cannot use the body: not one JSON value")
	}
	return nil
}

// scanner walks JSON looking only at nesting, keys and strings. It is total: text
// that is not JSON does no harm to it and is left to json.Valid.
type scanner struct {
	b     []byte
	i     int
	stack []frame
}

// frame is an open array (keys is nil) or object.
type frame struct {
	keys    map[string]bool
	wantKey bool
}

func (sc *scanner) walk() *client.Problem {
	for sc.i < len(sc.b) {
		c := sc.b[sc.i]
		sc.i++
		if c == '"' {
			if err := sc.str(); err != nil {
				return err
			}
			continue
		}
		if err := sc.punct(c); err != nil {
			return err
		}
	}
	return nil
}

func (sc *scanner) punct(c byte) *client.Problem {
	switch n := len(sc.stack); {
	case (c == '{' || c == '[') && n == maxDepth:
		return invalid(http.StatusBadRequest, "", "cannot use the body: nested deeper than %d", maxDepth)
	case c == '{':
		sc.stack = append(sc.stack, frame{keys: map[string]bool{}, wantKey: true})
	case c == '[':
		sc.stack = append(sc.stack, frame{})
	case (c == '}' || c == ']') && n > 0:
		sc.stack = sc.stack[:n-1]
	case (c == ',' || c == ':') && n > 0 && sc.stack[n-1].keys != nil:
		sc.stack[n-1].wantKey = c == ','
	}
	return nil
}

// str reads a string from after its opening quote.
func (sc *scanner) str() *client.Problem {
	start := sc.i - 1
	for sc.i < len(sc.b) && sc.b[sc.i] != '"' {
		if sc.b[sc.i] != '\\' {
			sc.i++
			continue
		}
		if err := sc.escape(); err != nil {
			return err
		}
	}
	sc.i = min(sc.i+1, len(sc.b))
	n := len(sc.stack)
	if n == 0 || !sc.stack[n-1].wantKey {
		return nil
	}
	var key string
	if json.Unmarshal(sc.b[start:sc.i], &key) != nil {
		return nil // json.Valid refuses the whole.
	}
	if sc.stack[n-1].keys[key] {
		return invalid(http.StatusBadRequest, "", "cannot use the body: %s stands twice in one object",
			chat.Quote(key))
	}
	sc.stack[n-1].keys[key] = true
	return nil
}

// escape passes one escape sequence; \u with a surrogate must be the first of a pair.
func (sc *scanner) escape() *client.Problem {
	r, ok := unit(sc.b[sc.i:])
	switch {
	case !ok:
		sc.i += 2
		return nil
	case r < 0xd800 || r > 0xdfff:
		sc.i += 6
		return nil
	case r < 0xdc00:
		if low, ok := unit(sc.b[sc.i+6:]); ok && low >= 0xdc00 && low <= 0xdfff {
			sc.i += 12
			return nil
		}
	}
	return invalid(http.StatusBadRequest, "", "cannot use the body: \\u%04x is half of a surrogate pair", r)
}

// unit reads \uXXXX at the front of b.
func unit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return v, err == nil
}
