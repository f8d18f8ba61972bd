package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// holder is the name by which a caller's requests and streams are counted: its owner. Callers
// without a role are counted together under the empty name, because their number has no bound.
func holder(c chat.Caller) string {
	if c.Role == "" {
		return ""
	}
	return c.Name
}

// enterStream bounds the caller's simultaneous streams.
func (s *Server) enterStream(r *http.Request) (leave func(), err error) {
	owner := holder(chat.CallerFrom(r.Context()))
	leave, ok := s.streams.Take(owner)
	if !ok {
		limit := uint64(s.opt.MaxStreams)
		err = &quota.SpentError{Share: quota.Streams, Owner: owner, Used: limit, Limit: limit}
	}
	return leave, err
}

// addStreams adds the owners' streams, which only the API counts, to their shares.
func (s *Server) addStreams(h *chat.Host) {
	limits := quota.Limits{quota.Streams: uint64(s.opt.MaxStreams)}
	for _, u := range limits.Uses(map[quota.Share]map[string]uint64{quota.Streams: s.streams.InUse()}) {
		h.Shares = append(h.Shares, u)
		if u.HalfSpent() {
			h.Findings = append(h.Findings, quota.Warning(u))
		}
	}
}

// pieces is an answer that is sent in pieces, each with a write deadline of its own.
type pieces struct {
	w       http.ResponseWriter
	timeout time.Duration
	head    http.Header
	begun   bool
	failed  error
}

func (s *Server) pieces(w http.ResponseWriter, kind string) pieces {
	return pieces{w: w, timeout: s.opt.WriteTimeout, head: http.Header{"Content-Type": {kind}}}
}

// begin writes the header. Until then, another answer may take its place.
func (p *pieces) begin() {
	if !p.begun {
		p.begun = true
		maps.Copy(p.w.Header(), p.head)
		p.w.WriteHeader(http.StatusOK)
	}
}

// Write sends one piece.
func (p *pieces) Write(piece []byte) (int, error) {
	p.begin()
	if err := http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, fmt.Errorf("cannot send a part of the answer: %w", err)
	}
	return p.w.Write(piece)
}

// send sends and flushes one piece.
func (p *pieces) send(piece []byte) error {
	if _, p.failed = p.Write(piece); p.failed == nil {
		p.failed = http.NewResponseController(p.w).Flush()
	}
	return p.failed
}

// serveStream is a row whose handler reads the body, or writes the answer, by itself: huma only reads the
// parameters.
func serveStream[I any](handle func(*Server, http.ResponseWriter, *http.Request, *I)) register {
	return serve(func(s *Server, _ context.Context, in *I) (*streamOutput, error) {
		return &streamOutput{func(c huma.Context) {
			r, w := humago.Unwrap(c)
			handle(s, w, r, in)
		}}, nil
	})
}

type streamOutput struct{ Body func(huma.Context) }
