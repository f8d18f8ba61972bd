package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

type healthAnswer struct {
	Status string `json:"status"`
}

func (s *Server) host(ctx context.Context, _ *noInput) (*bodyOf[chat.Host], error) {
	h, err := s.opt.Chats.Host(ctx)
	s.addStreams(&h)
	return &bodyOf[chat.Host]{h}, err
}

// health reports whether the daemon can begin something, and nothing about its chats.
func (s *Server) health(ctx context.Context, _ *noInput) (*bodyOf[healthAnswer], error) {
	st, err := s.opt.Chats.Status(ctx)
	if err == nil && !st.Ready {
		err = fmt.Errorf("cannot begin anything now: chatd status says why: %w", chat.ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	return &bodyOf[healthAnswer]{healthAnswer{"ok"}}, nil
}

// serveOpenAPI answers with the description of all rows.
func serveOpenAPI(s *Server, a huma.API, op huma.Operation) {
	a.OpenAPI().AddOperation(&op)
	s.completeDescription(a)
	text, err := json.MarshalIndent(a.OpenAPI(), "", "  ")
	if err != nil {
		panic(fmt.Errorf("cannot write the OpenAPI description: %w", err)) // a wrong schema is a bug
	}
	s.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", client.JSONType)
		// A client that stopped reading gets no further answer.
		_, _ = w.Write(append(text, '\n'))
	})
}
