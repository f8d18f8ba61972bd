package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
)

// answer records whether anything was written, and sets a time limit for a peer that does not read
// its answer.
type answer struct {
	http.ResponseWriter
	timeout time.Duration
	wrote   bool
	// room asks for memory for an answer of this many bytes, until the request is over; nil asks for none.
	// The header waits for the first bytes, which a refusal takes the place of.
	room    func(size int) *client.Problem
	refuse  func(w http.ResponseWriter, p *client.Problem)
	status  int
	size    int // of the whole answer, where the first write is shorter
	refused bool
}

// expect tells how long an answer is that is written in pieces.
func (w *answer) expect(size int) { w.size = size }

// WriteHeader starts the answer, or leaves that to the first Write.
func (w *answer) WriteHeader(status int) {
	if w.status = status; w.room == nil {
		w.start()
	}
}

// Write starts the answer.
func (w *answer) Write(b []byte) (int, error) {
	if room := w.room; room != nil && !w.wrote && !w.refused {
		w.room = nil
		if p := room(max(len(b), w.size)); p != nil {
			w.refuse(w, p)
			w.refused = true
		}
	}
	if w.refused {
		return len(b), nil
	}
	w.start()
	return w.ResponseWriter.Write(b)
}

// FlushError starts the answer.
func (w *answer) FlushError() error {
	w.start()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// start writes the header, once.
func (w *answer) start() {
	if w.wrote {
		return
	}
	w.wrote = true
	status := cmp.Or(w.status, http.StatusOK)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusNoContent {
		w.Header().Del("Content-Type") // huma names one before it knows that there is nothing
	}
	// Without a deadline the answer is still right; a slow reader only holds its connection longer.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController through.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuse writes p as the whole answer.
func (s *Server) refuse(w http.ResponseWriter, p *client.Problem) {
	b, err := json.Marshal(p)
	if err != nil {
		s.opt.Log.Error("cannot write a problem", "err", err)
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", client.ProblemType)
	w.WriteHeader(p.Status)
	// A client that stopped reading gets no further answer.
	_, _ = w.Write(append(b, '\n'))
}

// deny is the one place where a role is refused, and it is logged.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, caller chat.Caller) {
	s.opt.Log.Warn("denied", "uid", caller.UID, "name", caller.Name, "role", caller.Role, "method", r.Method,
		"path", chat.Quote(r.URL.Path))
	detail := "cannot serve uid %d: it is in no group that chatd lets in"
	if caller.Role != "" {
		detail = "cannot serve uid %d: this is for operators"
	}
	s.refuse(w, client.NewProblem(client.KindOf(chat.ErrDenied), 0, fmt.Sprintf(detail, caller.UID)))
}

// problem turns err into an answer. An internal error is for operators and the log; a bridge gets a
// reference to it.
func (s *Server) problem(ctx context.Context, err error) *client.Problem {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return p
	}
	k := client.KindOf(err)
	if errors.Is(ctx.Err(), context.Canceled) && (k.Sentinel == nil || errors.Is(err, context.Canceled)) {
		// The client does not read this, and work that its leaving cut off is no fault of chatd.
		s.opt.Log.Info("the client went away", "uid", chat.CallerFrom(ctx).UID, "err", err)
		return client.NewProblem(client.KindOf(chat.ErrBusy), 0, "cannot finish: the client went away")
	}
	if k.Sentinel != nil {
		return client.NewProblem(k, 0, chat.ErrorText(err)).Of(err)
	}
	var ref [6]byte
	_, _ = rand.Read(ref[:]) // never fails, see crypto/rand
	p := client.NewProblem(k, 0, chat.ErrorText(err))
	p.Ref = hex.EncodeToString(ref[:])
	caller := chat.CallerFrom(ctx)
	s.opt.Log.Error("internal error", "ref", p.Ref, "uid", caller.UID, "err", err)
	if caller.Role != chat.RoleOperator {
		p.Detail = "cannot finish: internal error; the daemon's log has more under ref " + p.Ref
	}
	return p
}

func panicError(cause any) error {
	return fmt.Errorf("cannot finish: panic: %v\n%s", cause, debug.Stack())
}

// routeOf finds the row of the table for r, or what to answer instead. Paths are matched as they
// are written: no cleaning, no redirect, no percent-encoding, because no route needs any of it. A
// path without a row has the access bridges, so that a peer without a role learns nothing.
func (s *Server) routeOf(r *http.Request) (verbs.Row, *client.Problem) {
	none := verbs.Row{Route: verbs.Route{Access: verbs.Bridges}}
	path := r.URL.EscapedPath()
	if !verbs.IsPlain(path) {
		return none, client.NewProblem(client.KindNamed("not_found"), 0,
			"cannot find "+chat.Quote(path)+": no such path")
	}
	h, pattern := s.mux.Handler(r)
	if rt, ok := s.byPattern[pattern]; ok && pattern != "" {
		return rt, nil
	}
	probe := &statusOnly{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		return none, invalid(probe.status, "", "cannot %s %s: want %s", chat.Quote(r.Method),
			chat.Quote(path), allow)
	}
	return none, client.NewProblem(client.KindNamed("not_found"), 0,
		"cannot find "+chat.Quote(path)+": no such path")
}

// checkQuery refuses values that do not decode to UTF-8 without NUL, and repeated parameters.
func checkQuery(raw string) *client.Problem {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return invalid(http.StatusBadRequest, "query", "cannot use the query: %v", err)
	}
	for k, vs := range q {
		if len(vs) > 1 {
			return invalid(http.StatusBadRequest, "query", "cannot use the query: %s stands twice",
				chat.Quote(k))
		}
		if !utf8.ValidString(k+vs[0]) || strings.IndexByte(k+vs[0], 0) >= 0 {
			return invalid(http.StatusBadRequest, "query",
				"cannot use the query: %s is not valid UTF-8 without NUL", chat.Quote(k))
		}
	}
	return nil
}

// statusOnly takes an answer of ServeMux and keeps its status.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
