package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/chatd/chatd/chat"
)

// enterStream bounds how many streams there are of the caller.
func (s *Server) enterStream(r *http.Request) (leave func(), err error) {
	leave, ok := s.streams.enter(chat.CallerFrom(r.Context()))
	if !ok {
		err = fmt.Errorf("cannot take the request: too many streams are being served: %w", chat.ErrBusy)
	}
	return leave, err
}

// stream is an answer that is sent piece by piece, each with its own time to be taken.
type stream struct {
	w       http.ResponseWriter
	timeout time.Duration
	kind    string // the Content-Type
	begun   bool
}

// send sends one piece at once. Before the first the answer may still become another.
func (s *stream) send(piece []byte) error {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", s.kind)
		s.w.WriteHeader(http.StatusOK)
	}
	c := http.NewResponseController(s.w)
	if err := c.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(piece); err != nil {
		return err
	}
	return c.Flush()
}
