package verbs

import (
	"context"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Files is the file tools. None of them wakes a sleeping chat. A denial by rules or walls is
// [chat.ErrDenied], and its error names rule and place.
type Files interface {
	// ReadFile is read_file in the chat; content goes to what begin returns.
	ReadFile(ctx context.Context, id chat.ID, a filewire.ReadFile,
		begin filewire.Begin) (filewire.Answer, error)
	// WriteFile is write_file; body is the content of a that streams, else nil. One more Read may
	// happen after WriteFile has returned.
	WriteFile(ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader) (filewire.Answer, error)
	// AppendFile is append_file; body is as for WriteFile.
	AppendFile(ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader) (filewire.Answer, error)
	// EditFile is edit_file.
	EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error)
	// ListDir is list_dir; a line for each entry goes to what begin returns.
	ListDir(ctx context.Context, id chat.ID, a filewire.ListDir,
		begin filewire.Begin) (filewire.Answer, error)
	// Share copies one regular file to another chat of the same caller.
	Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error)
}

var fileRows = []Row{
	{Route: Route{"share", "POST", "/v1/chats/{id}/share", Bridges, JSON, 200,
		"Copy one regular file to another chat."},
		Types: typesOf[chat.Share, chat.Shared], Front: Bind(Chats.Share)},
	{Route: Route{"read_file", "POST", "/v1/chats/{id}/files/read_file", Bridges, JSON, 200,
		"Read a page of a file, by bytes or by lines."}},
	{Route: Route{"write_file", "POST", "/v1/chats/{id}/files/write_file", Bridges, JSON, 200,
		"Write a file, in one step (201 if it is new)."}},
	{Route: Route{"edit_file", "POST", "/v1/chats/{id}/files/edit_file", Bridges, JSON, 200,
		"Replace a text that is there exactly once."}},
	{Route: Route{"append_file", "POST", "/v1/chats/{id}/files/append_file", Bridges, JSON, 200,
		"Add to the end of a file (201 if it is new)."}},
	{Route: Route{"list_dir", "POST", "/v1/chats/{id}/files/list_dir", Bridges, JSON, 200,
		"List a directory."}},
	{Route: Route{"get_content", "GET", "/v1/chats/{id}/files/content", Bridges, Nothing, 200,
		"Read a file, or a part of it, as a stream of bytes."}},
	{Route: Route{"put_content", "PUT", "/v1/chats/{id}/files/content", Bridges, Bytes, 200,
		"Write a file, or append to it, from a stream of bytes (201 if it is new)."}},
}

// Share copies one regular file to another chat of the same caller.
func (c FrontCalls) Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error) {
	return Verb[chat.Share, chat.Shared]("share").Call(ctx, c.Calls, id, s)
}
