package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

type screenInput struct {
	InChat
	Styles  bool `query:"styles" doc:"Leave colours and the like (SGR) in the text."`
	History int  `query:"history" minimum:"0" maximum:"2000" doc:"Show so many lines too that were scrolled away."`
}

func (s *Server) screen(ctx context.Context, in *screenInput) (*bodyOf[chat.Screen], error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	v, err := s.opt.Chats.ScreenWith(ctx, id, chat.ScreenSpec{Styles: in.Styles, History: in.History})
	return &bodyOf[chat.Screen]{v}, err
}

type typedOutput struct {
	Status int
	Body   *chat.Typed
}

func (s *Server) input(ctx context.Context, in *chatBody[chat.Input]) (*typedOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	if in.Body.Wait == nil {
		return &typedOutput{Status: http.StatusNoContent}, s.opt.Chats.Input(ctx, id, in.Body)
	}
	t, err := s.opt.Chats.InputWait(ctx, id, in.Body)
	return &typedOutput{Status: http.StatusOK, Body: &t}, err
}

// serveAttach registers a route of its own because the answer does not end by itself.
func serveAttach(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{chatParam}
	op.RequestBody = &huma.RequestBody{Required: true, Content: jsonContent(a, chat.Attach{})}
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "A frame of JSON a line: the run's id, then what the terminal is sent, then the end.", Content: textContent(client.FrameType)}
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
