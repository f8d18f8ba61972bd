package api

import (
	"context"
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
	kind    string // the Content-Type
	begun   bool
}

// send sends and flushes one piece. Until the first piece, another answer may take its place.
func (p *pieces) send(piece []byte) error {
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", p.kind)
		p.w.WriteHeader(http.StatusOK)
	}
	c := http.NewResponseController(p.w)
	if err := c.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return err
	}
	if _, err := p.w.Write(piece); err != nil {
		return err
	}
	return c.Flush()
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
