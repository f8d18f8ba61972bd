package api

import (
	"context"
	"net/http"

	"github.com/chatd/chatd/chat"
)

type (
	reapInput struct {
		InChat
		WithValues
		Archive string `query:"archive" enum:"true,false" doc:"Archive it first."`
	}
	reapOutput = withStatus[*chat.Archive]
)

// reap reaps a chat and, with archive=true, archives it first.
func (s *Server) reap(ctx context.Context, in *reapInput) (*reapOutput, error) {
	if in.Archive != "true" {
		return &reapOutput{Status: http.StatusNoContent}, s.opt.Chats.Reap(ctx, in.ID)
	}
	a, err := s.opt.Chats.Archive(ctx, in.ID, chat.ToArchive{})
	return &reapOutput{Status: http.StatusOK, Body: &a}, err
}

func (s *Server) listArchives(
	ctx context.Context, f *chat.ArchiveFilter,
) (*bodyOf[chat.ArchiveList], error) {
	if f.Chat != "" {
		if _, err := chat.ParseID(string(f.Chat)); err != nil {
			return nil, err
		}
	}
	all, err := s.opt.Chats.Archives(ctx, *f)
	return &bodyOf[chat.ArchiveList]{chat.ArchiveList{Archives: append([]chat.Archive{}, all...)}}, err
}
