package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// The rows about a chat's terminal.
var (
	send    = route{"POST", "/v1/chats/{id}/input", bridges, jsonBody, "send", 204, "Type into the chat's terminal; with wait, answer with what was printed (200).", serve((*Server).input)}
	screen  = route{"GET", "/v1/chats/{id}/screen", bridges, nothing, "screen", 200, "Show what the chat's terminal shows.", about(screenOf)}
	readLog = route{"GET", "/v1/chats/{id}/log", bridges, nothing, "log", 200, "Read what the chat's terminal printed, from a cursor on; with follow=true, as server-sent events.", serveLog}
	attach  = route{"POST", "/v1/chats/{id}/attach", operators, jsonBody, "attach", 200, "Show the chat's terminal as it changes, in frames of a run, to which input and new sizes are sent.", serveAttach}

	terminalRoutes = []route{send, screen, readLog, attach}
)

type (
	screenInput struct {
		InChat
		Styles  bool `query:"styles" doc:"Leave colours and the like (SGR) in the text."`
		History int  `query:"history" minimum:"0" maximum:"2000" doc:"Show so many lines too that were scrolled away."`
	}
	typedOutput struct {
		Status int
		Body   *chat.Typed
	}
)

func (s *Server) input(ctx context.Context, in *chatBody[chat.Input]) (*typedOutput, error) {
	id, err := in.chat()
	if err != nil {
		return nil, err
	}
	if in.Body.Wait == nil {
		return &typedOutput{Status: http.StatusNoContent}, s.opt.Chats.Input(ctx, id, in.Body)
	}
	t, err := s.opt.Chats.InputWait(ctx, id, in.Body)
	return &typedOutput{Status: http.StatusOK, Body: &t}, err
}

// InputWait is POST /v1/chats/{id}/input with a wait.
func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	if in.Wait == nil {
		return chat.Typed{}, fmt.Errorf("cannot wait: no wait is given: %w", chat.ErrInvalid)
	}
	return askFor[chat.Typed](ctx, c, send, target{chat: id}, in)
}

func screenOf(ctx context.Context, c Chats, id chat.ID, in *screenInput) (chat.Screen, error) {
	return c.ScreenWith(ctx, id, chat.ScreenSpec{Styles: in.Styles, History: in.History})
}

// serveAttach registers a route of its own because the answer does not end by itself.
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
	return c.runFrames(ctx, attach, id, a, a.Started, out)
}
