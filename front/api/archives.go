package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// The rows about archives of chats.
var (
	archive = route{
		"POST", "/v1/chats/{id}/archive", bridges, jsonBody, "archive", 200,
		"Archive a chat, and reap it once the archive is checked, unless keep. The answer may " +
			"take hours; a client that goes away ends it.",
		of(Chats.Archive),
	}
	listArchives = route{
		"GET", "/v1/archives", bridges, nothing, "list_archives", 200,
		"List the caller's archives, the newest last; an operator's are all.",
		serve((*Server).listArchives),
	}
	verifyArchive = route{
		"POST", "/v1/archives/{name}/verify", bridges, nothing, "verify_archive", 200,
		"Read an archive. One that is not whole is an error. The answer may take hours.",
		named(Chats.VerifyArchive),
	}
	unarchive = route{
		"POST", "/v1/archives/{name}/unarchive", bridges, nothing, "unarchive", 200,
		"Make a chat of an archive again, asleep: its id is the same, its uid is new. The answer " +
			"may take hours; a client that goes away ends it.",
		named(Chats.Unarchive),
	}
	removeArchive = route{
		"DELETE", "/v1/archives/{name}", bridges, nothing, "remove_archive", 204,
		"Remove an archive for ever.", serve((*Server).removeArchive),
	}

	archiveRoutes = []route{archive, listArchives, verifyArchive, unarchive, removeArchive}
)

type (
	archivesInput struct {
		Owner      string `query:"owner" maxLength:"64" doc:"Only those of this owner."`
		ExternalID string `query:"external_id" maxLength:"512" doc:"Only those of this external id."`
		Chat       string `query:"chat" maxLength:"16" doc:"Only those of this chat."`
	}
	inArchive struct {
		Name string `path:"name" maxLength:"64" doc:"The archive: its chat's id, a dash, a time."`
	}
	reapInput struct {
		InChat
		Archive string `query:"archive" enum:"true,false" doc:"Archive it first."`
	}
	reapOutput struct {
		Status int
		Body   *chat.Archive
	}
)

// named is a row that gets an answer about one archive.
func named[R any](ask func(Chats, context.Context, chat.ArchiveName) (R, error)) register {
	return serve(func(s *Server, ctx context.Context, in *inArchive) (*bodyOf[R], error) {
		name, err := chat.ParseArchiveName(in.Name)
		if err != nil {
			return nil, err
		}
		v, err := ask(s.opt.Chats, ctx, name)
		return &bodyOf[R]{v}, err
	})
}

// Resolve refuses an archive without a value, which huma takes for none: the chat would be gone.
func (reapInput) Resolve(ctx huma.Context) []error {
	if u := ctx.URL(); u.Query().Has("archive") && u.Query().Get("archive") == "" {
		return []error{&huma.ErrorDetail{Location: "query.archive", Message: "want true or false"}}
	}
	return nil
}

// reap is [Client.Reap] and, with archive=true, [Client.Archive].
func (s *Server) reap(ctx context.Context, in *reapInput) (*reapOutput, error) {
	id, err := in.chat()
	if err != nil {
		return nil, err
	}
	if in.Archive != "true" {
		return &reapOutput{Status: http.StatusNoContent}, s.opt.Chats.Reap(ctx, id)
	}
	a, err := s.opt.Chats.Archive(ctx, id, chat.ToArchive{})
	return &reapOutput{Status: http.StatusOK, Body: &a}, err
}

// ReapArchived is DELETE /v1/chats/{id}?archive=true. It may take hours, and ends with ctx.
func (c *Client) ReapArchived(ctx context.Context, id chat.ID) (chat.Archive, error) {
	t := target{chat: id, query: "?archive=true"}
	return askFor[chat.Archive](ctx, c, reap, t, nil)
}

func (s *Server) listArchives(ctx context.Context, in *archivesInput) (*bodyOf[chat.ArchiveList], error) {
	f := chat.ArchiveFilter{Owner: in.Owner, ExternalID: in.ExternalID, Chat: chat.ID(in.Chat)}
	if f.Chat != "" {
		if _, err := chat.ParseID(in.Chat); err != nil {
			return nil, err
		}
	}
	list := chat.ArchiveList{Archives: []chat.Archive{}}
	all, err := s.opt.Chats.Archives(ctx, f)
	list.Archives = append(list.Archives, all...)
	return &bodyOf[chat.ArchiveList]{list}, err
}

func (s *Server) removeArchive(ctx context.Context, in *inArchive) (*emptyOutput, error) {
	name, err := chat.ParseArchiveName(in.Name)
	if err == nil {
		err = s.opt.Chats.RemoveArchive(ctx, name)
	}
	return nil, err
}

// Archives is GET /v1/archives.
func (c *Client) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	var list chat.ArchiveList
	err := c.call(ctx, listArchives.name, "", f, &list)
	return list.Archives, err
}
