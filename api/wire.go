package api

import (
	"context"
	"net/http"

	"github.com/chatd/chatd/chat"
)

type (
	noInput struct{}
	idInput struct {
		ID string `path:"id" doc:"The chat: 16 lower-case hex digits."`
	}
	createInput struct{ Body chat.Spec }
	// huma does not look into embedded structs that are not exported.
	runInput struct {
		ID   string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Body chat.RunSpec
	}
	typeInput struct {
		ID   string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Body chat.Input
	}
	screenInput struct {
		ID      string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Styles  bool   `query:"styles" doc:"Leave colours and the like (SGR) in the text."`
		History int    `query:"history" minimum:"0" maximum:"2000" doc:"Show so many lines too that were scrolled away."`
	}
	listInput struct {
		Owner      string `query:"owner" maxLength:"64" doc:"Only chats of this owner."`
		ExternalID string `query:"external_id" maxLength:"512" doc:"Only the chat of this external id."`
		Label      string `query:"label" maxLength:"321" doc:"key=value, or key for any value."`
		Awake      string `query:"awake" enum:"true,false" doc:"Only awake or only sleeping chats."`
		Limit      int    `query:"limit" minimum:"1" maximum:"1000" doc:"At most so many; the server may return fewer."`
		Cursor     string `query:"cursor" maxLength:"1024" doc:"What next said on the page before."`
	}

	createOutput struct {
		Status int
		Body   chat.Chat
	}
	typedOutput struct {
		Status int
		Body   *chat.Typed
	}
	emptyOutput   struct{}
	bodyOf[T any] struct{ Body T }
	chatOutput    = bodyOf[chat.Chat]
	healthAnswer  struct {
		Status string `json:"status"`
	}
)

func (s *Server) create(ctx context.Context, in *createInput) (*createOutput, error) {
	c, created, err := s.opt.Chats.Create(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	out := &createOutput{Status: http.StatusOK, Body: c}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (s *Server) list(ctx context.Context, in *listInput) (*bodyOf[chat.Page], error) {
	f := chat.Filter{Owner: in.Owner, ExternalID: in.ExternalID, Label: in.Label, Limit: in.Limit, Cursor: in.Cursor}
	if in.Awake != "" {
		awake := in.Awake == "true"
		f.Awake = &awake
	}
	page, err := s.opt.Chats.List(ctx, f)
	if page.Chats == nil {
		page.Chats = []chat.Chat{}
	}
	return &bodyOf[chat.Page]{page}, err
}

func (s *Server) show(ctx context.Context, in *idInput) (*chatOutput, error) {
	return byID(ctx, in, s.opt.Chats.Get)
}

func (s *Server) wake(ctx context.Context, in *idInput) (*chatOutput, error) {
	return byID(ctx, in, s.opt.Chats.Wake)
}

func (s *Server) sleep(ctx context.Context, in *idInput) (*chatOutput, error) {
	return byID(ctx, in, s.opt.Chats.Sleep)
}

func (s *Server) screen(ctx context.Context, in *screenInput) (*bodyOf[chat.Screen], error) {
	spec := chat.ScreenSpec{Styles: in.Styles, History: in.History}
	return byID(ctx, &idInput{ID: in.ID}, func(ctx context.Context, id chat.ID) (chat.Screen, error) {
		return s.opt.Chats.ScreenWith(ctx, id, spec)
	})
}

func (s *Server) plan(ctx context.Context, in *idInput) (*bodyOf[chat.Plan], error) {
	return byID(ctx, in, s.opt.Chats.Plan)
}

// byID is every request that is only a chat's id and gives something back.
func byID[T any](ctx context.Context, in *idInput, do func(context.Context, chat.ID) (T, error)) (*bodyOf[T], error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := do(ctx, id)
	return &bodyOf[T]{v}, err
}

func (s *Server) reap(ctx context.Context, in *idInput) (*emptyOutput, error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.opt.Chats.Reap(ctx, id)
}

func (s *Server) run(ctx context.Context, in *runInput) (*bodyOf[chat.RunResult], error) {
	return byID(ctx, &idInput{ID: in.ID}, func(ctx context.Context, id chat.ID) (chat.RunResult, error) {
		return s.opt.Chats.Run(ctx, id, in.Body)
	})
}

func (s *Server) input(ctx context.Context, in *typeInput) (*typedOutput, error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body.Wait == nil {
		return &typedOutput{Status: http.StatusNoContent}, s.opt.Chats.Input(ctx, id, in.Body)
	}
	t, err := s.opt.Chats.InputWait(ctx, id, in.Body)
	return &typedOutput{Status: http.StatusOK, Body: &t}, err
}

func (s *Server) host(ctx context.Context, _ *noInput) (*bodyOf[chat.Host], error) {
	h, err := s.opt.Chats.Host(ctx)
	s.addStreams(&h)
	return &bodyOf[chat.Host]{h}, err
}

func (s *Server) status(ctx context.Context, _ *noInput) (*bodyOf[chat.Status], error) {
	st, err := s.opt.Chats.Status(ctx)
	return &bodyOf[chat.Status]{st}, err
}

// health says that the daemon answers, and nothing about its chats.
func (s *Server) health(context.Context, *noInput) (*bodyOf[healthAnswer], error) {
	return &bodyOf[healthAnswer]{healthAnswer{"ok"}}, nil
}
