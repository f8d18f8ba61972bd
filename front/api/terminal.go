package api

import (
	"context"
	"net/http"

	"github.com/chatd/chatd/chat"
)

type screenInput struct {
	InChat
	Styles  bool `query:"styles" doc:"Leave colours and the like (SGR) in the text."`
	History int  `query:"history" minimum:"0" maximum:"2000" doc:"Show so many lines too that were scrolled away."`
}

func (s *Server) screen(ctx context.Context, in *screenInput) (*bodyOf[chat.Screen], error) {
	v, err := s.opt.Chats.ScreenWith(ctx, in.ID, chat.ScreenSpec{Styles: in.Styles, History: in.History})
	return &bodyOf[chat.Screen]{v}, err
}

type typedOutput = withStatus[*chat.Typed]

func (s *Server) input(ctx context.Context, in *chatBody[chat.Input]) (*typedOutput, error) {
	if in.Body.Wait == nil {
		return &typedOutput{Status: http.StatusNoContent}, s.opt.Chats.Input(ctx, in.ID, in.Body)
	}
	t, err := s.opt.Chats.InputWait(ctx, in.ID, in.Body)
	return &typedOutput{Status: http.StatusOK, Body: &t}, err
}

// attach is a streamed run of a terminal.
func (s *Server) attach(w http.ResponseWriter, r *http.Request, in *chatBody[chat.Attach]) {
	s.sendFrames(w, r, func(ctx context.Context, f *frames) (chat.RunResult, error) {
		f.queued()
		in.Body.Started = f.started
		return s.opt.Chats.Attach(ctx, in.ID, in.Body, f.output)
	})
}
