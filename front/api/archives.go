package api

import (
	"context"
	"net/http"

	"github.com/chatd/chatd/chat"
)

type (
	archivesInput struct {
		Owner      string `query:"owner" maxLength:"64" doc:"Only those of this owner."`
		ExternalID string `query:"external_id" maxLength:"512" doc:"Only those of this external id."`
		Chat       string `query:"chat" maxLength:"16" doc:"Only those of this chat."`
	}
	reapInput struct {
		InChat
		WithValues
		Archive string `query:"archive" enum:"true,false" doc:"Archive it first."`
	}
	reapOutput struct {
		Status int
		Body   *chat.Archive
	}
)

// reap reaps a chat and, with archive=true, archives it first.
func (s *Server) reap(ctx context.Context, in *reapInput) (*reapOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	if in.Archive != "true" {
		return &reapOutput{Status: http.StatusNoContent}, s.opt.Chats.Reap(ctx, id)
	}
	a, err := s.opt.Chats.Archive(ctx, id, chat.ToArchive{})
	return &reapOutput{Status: http.StatusOK, Body: &a}, err
}

func (s *Server) listArchives(ctx context.Context, in *archivesInput) (*bodyOf[chat.ArchiveList], error) {
	f := chat.ArchiveFilter{Owner: in.Owner, ExternalID: in.ExternalID, Chat: chat.ID(in.Chat)}
	if f.Chat != "" {
		if _, err := chat.ParseID(in.Chat); err != nil {
			return nil, err
		}
	}
	all, err := s.opt.Chats.Archives(ctx, f)
	return &bodyOf[chat.ArchiveList]{chat.ArchiveList{Archives: append([]chat.Archive{}, all...)}}, err
}
