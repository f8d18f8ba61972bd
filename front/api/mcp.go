package api

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

// serveMCP registers the route of the Model Context Protocol over streamable HTTP:
// ServerOptions.MCP answers if the caller may reach the chat.
func serveMCP(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{chatParam}
	message := map[string]*huma.MediaType{client.JSONType: {Schema: &huma.Schema{Type: "object"}}}
	op.RequestBody = &huma.RequestBody{Required: true, Description: "A message of JSON-RPC.",
		Content: message}
	answer := maps.Clone(message)
	maps.Copy(answer, textContent(client.EventType))
	op.Responses["200"] = &huma.Response{Description: "The answer, or where progress was asked for a stream of events with the answer last.", Content: answer}
	op.Responses["202"] = &huma.Response{Description: "A notification was taken."}
	op.Responses["400"] = &huma.Response{Description: "An error of JSON-RPC, or a problem.", Content: message}
	s.serveBeside(a, op, func(w http.ResponseWriter, r *http.Request) {
		id, err := s.mcpChat(r)
		if err != nil {
			s.refuse(w, s.problem(r.Context(), err))
			return
		}
		out := &mcpAnswer{ResponseWriter: w, timeout: s.opt.WriteTimeout}
		s.opt.MCP(s.opt.Chats, id, s.problem).ServeHTTP(out, r)
		if out.refused != 0 {
			s.refuse(w, invalid(out.refused, "", "cannot use the message: %s",
				strings.TrimSpace(out.text.String())))
		}
	})
}

// mcpAnswer gives each piece of an answer a write deadline of its own, because a stream of events
// may be long. It holds back an error in plain text, which becomes a problem.
type mcpAnswer struct {
	http.ResponseWriter
	timeout time.Duration
	refused int
	text    bytes.Buffer
}

// WriteHeader starts the answer unless it is an error that is not JSON.
func (w *mcpAnswer) WriteHeader(status int) {
	t, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if status >= http.StatusBadRequest && (err != nil || t != client.JSONType) {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends a piece.
func (w *mcpAnswer) Write(b []byte) (int, error) {
	if w.refused != 0 {
		return w.text.Write(b)
	}
	if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (w *mcpAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Problems turns an error into an answer of the API; an internal error is logged under the answer's
// reference.
type Problems func(context.Context, error) *client.Problem

func (s *Server) mcpChat(r *http.Request) (chat.ID, error) {
	if s.opt.MCP == nil {
		return "", fmt.Errorf("MCP is not enabled: this daemon was built without it: %w", chat.ErrUnsupported)
	}
	id := chat.ID(r.PathValue("id"))
	_, err := s.opt.Chats.Get(r.Context(), id)
	return id, err
}
