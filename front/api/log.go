package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

type logInput struct {
	InChat
	WithValues
	Since  optional[int64] `query:"since" minimum:"0" doc:"A cursor; from the first byte that is kept if it is absent."`
	Follow bool            `query:"follow" doc:"Go on as the terminal prints, as server-sent events."`
	Last   optional[int64] `header:"Last-Event-ID" minimum:"0" doc:"A cursor, in the place of since."`
}

// since is the cursor; below 0 is the first byte that is kept.
func (in *logInput) since() int64 {
	switch {
	case in.Last.set:
		return in.Last.value
	case in.Since.set:
		return in.Since.value
	}
	return -1
}

func (s *Server) getLog(w http.ResponseWriter, r *http.Request, in *logInput) {
	if in.Follow {
		s.followLog(w, r, in.ID, in.since())
		return
	}
	l, err := s.opt.Chats.Log(r.Context(), in.ID, in.since())
	s.answerJSON(w, r, http.StatusOK, l, err)
}

// followLog sends pieces as they are printed. A slow client gets what is still kept by then, and
// how much is lost; it does not hold up the chat or other clients.
func (s *Server) followLog(w http.ResponseWriter, r *http.Request, id chat.ID, since int64) {
	leave, err := s.enterStream(r)
	defer leave()
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	e := events{s.pieces(w, client.EventType)}
	err = s.opt.Chats.FollowLog(r.Context(), id, since, func(l chat.Log) error {
		if len(l.Bytes()) == 0 && e.begun {
			return e.send([]byte(": nothing new\n\n"))
		}
		return e.event("", l.Cursor, l)
	})
	switch p := s.problem(r.Context(), err); {
	case !e.begun:
		s.refuse(w, p)
	case e.failed == nil && r.Context().Err() == nil:
		_ = e.event(client.ProblemEvent, -1, p) // a client that stopped reading gets no further answer
	}
}

// events writes server-sent events.
type events struct{ pieces }

// event sends one event; an id below 0 is left out. Encoded JSON has no line ends.
func (e *events) event(name string, id int64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write an event: %w", err)
	}
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	if id >= 0 {
		fmt.Fprintf(&b, "id: %d\n", id)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	return e.send(b.Bytes())
}
