package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// serveMCP registers the route that speaks a protocol of its own, streamable HTTP of
// the Model Context Protocol: ServerOptions.MCP answers, once the caller reaches the
// chat.
func serveMCP(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{chatParam}
	message := map[string]*huma.MediaType{jsonType: {Schema: &huma.Schema{Type: "object"}}}
	op.RequestBody = &huma.RequestBody{Required: true, Description: "A message of JSON-RPC.", Content: message}
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "The answer.", Content: message}
	s.serveBeside(a, op, func(w http.ResponseWriter, r *http.Request) {
		id, err := s.mcpChat(r)
		if err != nil {
			s.refuse(w, s.problem(r.Context(), err))
			return
		}
		s.opt.MCP(s.opt.Chats, id, s.problem).ServeHTTP(w, r)
	})
}

// Problems makes an error an answer of the API; an internal one is logged, under the
// reference that the answer has.
type Problems func(context.Context, error) *Problem

func (s *Server) mcpChat(r *http.Request) (chat.ID, error) {
	if s.opt.MCP == nil {
		return "", fmt.Errorf("cannot speak MCP: this daemon was made without: %w", chat.ErrUnsupported)
	}
	id, err := chat.ParseID(r.PathValue("id"))
	if err != nil {
		return "", err
	}
	_, err = s.opt.Chats.Get(r.Context(), id)
	return id, err
}
