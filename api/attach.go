package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// serveAttach: the answer does not end by itself.
func serveAttach(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{chatParam}
	op.RequestBody = &huma.RequestBody{Required: true, Content: jsonContent(a, chat.Attach{})}
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "A frame of JSON a line: the run's id, then what the terminal is sent, then the end.", Content: textContent(frameType)}
	s.serveBeside(a, op, s.attach)
}

// attach is streamRun for a terminal.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	var spec chat.Attach
	id, err := idAndBody(r, &spec)
	s.sendFrames(w, r, err, func(ctx context.Context, f *frames) (chat.RunResult, error) {
		f.queued()
		spec.Started = f.started
		return s.opt.Chats.Attach(ctx, id, spec, f.output)
	})
}

// Attach is POST /v1/chats/{id}/attach; ending ctx lets go of the terminal.
func (c *Client) Attach(ctx context.Context, id chat.ID, a chat.Attach, out chat.Output) (chat.RunResult, error) {
	return c.runFrames(ctx, id, "/attach", a, a.Started, out)
}
