package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Archives writes chats into archives, and makes chats of them again. An archive that the caller
// may not reach is [chat.ErrNotFound], as one that does not exist.
type Archives interface {
	// Archive archives the chat, and reaps it once the archive is checked, unless how.Keep. It may
	// take hours, and ends with ctx.
	Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error)
	// Archives lists the archives of the caller, the newest last; an operator's are all.
	Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error)
	// VerifyArchive reads an archive. One that is not whole is an error. It may take hours.
	VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error)
	// Unarchive makes the chat again, asleep: its id is the same, its uid is new. It may take
	// hours. A chat that exists is [chat.ErrExists].
	Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error)
	// RemoveArchive removes an archive for ever.
	RemoveArchive(ctx context.Context, name chat.ArchiveName) error
}

var (
	archive = chatVerbArg("archive", Root.Archive)
	// The call's chat is used because it is checked; the one in the arguments is not.
	archives = verbFunc("archives", func(
		ctx context.Context, c *call, f chat.ArchiveFilter,
	) ([]chat.Archive, error) {
		f.Chat = c.Chat
		return c.root.Archives(ctx, f)
	})
	verifyArchive = named("verify_archive", Root.VerifyArchive)
	unarchive     = named("unarchive", Root.Unarchive)
	removeArchive = named("remove_archive", func(
		root Root, ctx context.Context, name chat.ArchiveName,
	) (nothing, error) {
		return nothing{}, root.RemoveArchive(ctx, name)
	})
)

// named is the verb of a method that takes the name of an archive. A front may send anything in its
// place, and chatd-root makes paths of it.
func named[R any](
	name string, do func(Root, context.Context, chat.ArchiveName) (R, error),
) verb[chat.ArchiveName, R] {
	return verbFunc(name, func(ctx context.Context, c *call, a chat.ArchiveName) (R, error) {
		sound, err := chat.ParseArchiveName(string(a))
		if err != nil {
			var none R
			return none, err
		}
		return do(c.root, ctx, sound)
	})
}

// Archive archives a chat, and reaps it unless how.Keep. It may take hours, and ends with ctx.
func (c Calls) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	return archive.call(ctx, c, id, how)
}

// VerifyArchive reads an archive. It may take hours.
func (c Calls) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	return verifyArchive.call(ctx, c, "", name)
}

// Unarchive makes the chat of an archive again. It may take hours, and ends with ctx.
func (c Calls) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	return unarchive.call(ctx, c, "", name)
}

// RemoveArchive removes an archive for ever.
func (c Calls) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	return removeArchive.order(ctx, c, "", name)
}

func (c *Client) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	return archives.call(ctx, c.Calls, f.Chat, f)
}
