package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/verbs"
)

// ServerOptions says what to serve and to whom. Zero numbers and times take the
// defaults named beside them.
type ServerOptions struct {
	Chats verbs.Chats
	// Operators and Bridges are group ids. A peer that is a member of one has that role. uid 0 is
	// always an operator, and a member of both is an operator.
	Operators, Bridges []uint32
	// NameOf resolves a uid; the name becomes the owner of the chats that a bridge creates. nil
	// means "uid-" and the number.
	NameOf func(uid uint32) (string, error)
	// Log receives denials, panics and internal errors; nil discards them.
	Log *slog.Logger
	// Version stands in the OpenAPI description.
	Version string
	// MCP answers the Model Context Protocol for one chat; nil answers unsupported. It
	// is called for each request, whose context has the caller.
	MCP func(verbs.Chats, chat.ID, Problems) http.Handler
	// MaxBody bounds a request's JSON body in bytes: 2 MiB.
	MaxBody int64
	// MaxBodies bounds what the bodies of one owner's requests may hold simultaneously beyond the
	// first 64 KiB of each, in bytes: 32 MiB.
	MaxBodies int64
	// MaxFile bounds a file that comes or goes as a stream, in bytes: 1 GiB.
	MaxFile int64
	// MaxStreams bounds the simultaneous streams of one owner: 256.
	MaxStreams int
	// MaxRequests bounds the requests of one uid that are served simultaneously, and those of all
	// uids without a role together: 512.
	MaxRequests int
	// MaxConns bounds how many connections one uid may hold: 1024.
	MaxConns int
	// HeaderTimeout, BodyTimeout and WriteTimeout bound how long a peer may take to send its
	// headers (10 s), to send its body (30 s) and to read an answer (30 s); of a stream, each
	// piece. IdleTimeout ends a connection without requests (2 min). How long a request may be
	// worked on has no bound here.
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.NameOf == nil {
		o.NameOf = func(uid uint32) (string, error) { return fmt.Sprintf("uid-%d", uid), nil }
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Version = cmp.Or(o.Version, "0")
	o.MaxBody = cmp.Or(o.MaxBody, 2<<20)
	o.MaxBodies = cmp.Or(o.MaxBodies, 32<<20)
	o.MaxFile = cmp.Or(o.MaxFile, 1<<30)
	o.MaxStreams = cmp.Or(o.MaxStreams, 256)
	o.MaxRequests = cmp.Or(o.MaxRequests, 512)
	o.MaxConns = cmp.Or(o.MaxConns, 1024)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Minute)
	return o
}

// Server answers on unix sockets.
type Server struct {
	opt       ServerOptions
	http      *http.Server
	mux       *http.ServeMux
	byPattern map[string]verbs.Row
	requests  *quota.Counter // by holder
	streams   *quota.Counter
	bodies    *quota.Counter // in pieces
	lists     *quota.Limiter // lists until they are written, by holder
	working   atomic.Int64   // requests that are being served
}

// NewServer prepares a server; it listens to nothing yet.
func NewServer(opt ServerOptions) *Server {
	s := &Server{opt: opt.withDefaults()}
	s.requests, s.streams = quota.NewCounter(s.opt.MaxRequests), quota.NewCounter(s.opt.MaxStreams)
	s.bodies = quota.NewCounter(int(s.opt.MaxBodies / bodyPiece))
	s.lists = quota.NewOwnerLimiter(maxLists, maxListsEach, time.Hour)
	s.registerRoutes()
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		ReadHeaderTimeout: s.opt.HeaderTimeout,
		IdleTimeout:       s.opt.IdleTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
		ConnState:         turn,
		// The route table answers OPTIONS * too.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
		// There is no ReadTimeout: it would stay set while a request is served, and net/http would
		// take it for the client going away.
	}
	return s
}

// Serve answers on l until [Server.Shutdown]; then it returns nil. It closes l. Connections of
// anything but a unix socket are closed immediately, because their peer is unknown.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(&guard{Listener: l, opt: s.opt, open: quota.NewCounter(s.opt.MaxConns)})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("cannot serve on %s: %w", l.Addr(), err)
}

// Shutdown closes the listeners, lets the requests under way finish until ctx ends, then cuts them
// off. Their contexts are cancelled, and they get cutOffTimeout to clean up. The error is then that
// of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	err = errors.Join(err, s.http.Close())
	for end := time.Now().Add(cutOffTimeout); s.working.Load() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("cannot let every request finish: %w", err)
}

// cutOffTimeout is how long requests that were cut off may take to clean up.
const cutOffTimeout = 5 * time.Second

// handle serves every request; doc.go has the order of its checks.
func (s *Server) handle(rw http.ResponseWriter, r *http.Request) {
	s.working.Add(1)
	defer s.working.Add(-1)
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.answering = true
	}
	w := &answer{ResponseWriter: rw, timeout: s.opt.WriteTimeout}
	caller := chat.Caller{}
	defer func() { s.recovered(w, r, caller, recover()) }()
	// The write deadline of the connection's previous answer must not apply to this one.
	if err := http.NewResponseController(rw).SetWriteDeadline(time.Time{}); err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	caller, err := s.callerOf(r)
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	r = r.WithContext(chat.WithCaller(r.Context(), caller))
	leave, ok := s.requests.Take(holder(caller))
	defer leave()
	if !ok {
		s.refuse(w, client.NewProblem(client.KindOf(chat.ErrBusy), 0,
			fmt.Sprintf("cannot take the request: %d requests of this user are being served, the maximum: try again when one has ended", s.opt.MaxRequests)))
		return
	}
	s.dispatch(w, r, caller)
}

// dispatch checks the route, the role and the body, in this order.
func (s *Server) dispatch(w *answer, r *http.Request, caller chat.Caller) {
	rt, missing := s.routeOf(r)
	if !rt.Access.Admits(caller.Role) {
		s.deny(w, r, caller)
		return
	}
	if missing != nil {
		s.refuse(w, missing)
		return
	}
	held := &bodyMemory{bodies: s.bodies, owner: holder(caller)}
	defer held.giveBack()
	if p := s.checkRequest(w, r, rt, held); p != nil {
		s.refuse(w, p)
		return
	}
	if rt.Name == "list" || rt.Name == "list_archives" {
		leave, err := s.lists.Enter(r.Context(), holder(caller), rt.Name)
		if err != nil {
			s.refuse(w, s.problem(r.Context(), err))
			return
		}
		defer leave()
	}
	unread := &bodyMemory{bodies: s.bodies, owner: holder(caller)}
	defer unread.giveBack()
	w.refuse = s.refuse
	w.room = func(size int) *client.Problem {
		if r.Method != http.MethodGet && rt.Name != "read_file" && rt.Name != "list_dir" {
			return nil // the act is done, and its answer says so
		}
		if err := unread.take(size + bodyPiece); err != nil {
			return s.problem(r.Context(), err)
		}
		return nil
	}
	s.mux.ServeHTTP(w, r)
	if w.room = nil; w.status != 0 {
		w.start() // an answer without a body
	}
}

// Bounds on the lists that exist simultaneously: those of all callers, and those of one, whose
// others wait. A list exists until its caller has read it, or WriteTimeout has passed.
const (
	maxLists     = 32
	maxListsEach = 4
)

// recovered turns a panic into an answer and a line in the log.
func (s *Server) recovered(w *answer, r *http.Request, caller chat.Caller, cause any) {
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	p := s.problem(chat.WithCaller(r.Context(), caller), panicError(cause))
	if w.wrote {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	s.refuse(w, p)
}

// checkRequest reads the body, puts the checked bytes in its place, and checks the query's encoding and
// the chat.
func (s *Server) checkRequest(
	w http.ResponseWriter, r *http.Request, rt verbs.Row, held *bodyMemory,
) *client.Problem {
	if p := checkQuery(r.URL.RawQuery); p != nil {
		return p
	}
	var noChat *client.Problem
	if strings.Contains(rt.Path, "{id}") {
		if _, err := chat.ParseID(strings.Split(r.URL.Path, "/")[3]); err != nil {
			noChat = s.problem(r.Context(), err)
		}
	}
	if rt.Body == verbs.Bytes {
		if noChat != nil {
			s.drain(w, r)
		}
		return noChat
	}
	b, p := s.readBody(w, r, held)
	switch {
	case cmp.Or(p, noChat) != nil:
		return cmp.Or(p, noChat)
	case rt.Body == verbs.Nothing && len(b) > 0:
		return invalid(http.StatusBadRequest, "", "cannot use the body: %s %s takes none", rt.Method, rt.Path)
	case rt.Body == verbs.Nothing:
		return nil
	}
	if p := checkType(r); p != nil {
		return p
	}
	if p := checkJSON(b); p != nil {
		return p
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}
