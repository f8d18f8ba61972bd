package verbs

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
	archive = add(Route{"archive", "POST", "/v1/chats/{id}/archive", Bridges, JSON, 200,
		"Archive a chat, and reap it once the archive is checked, unless keep. The answer may " +
			"take hours; a client that goes away ends it."}, Base.Archive)
	archives = add(Route{"list_archives", "GET", "/v1/archives", Bridges, Nothing, 200,
		"List the caller's archives, the newest last; an operator's are all."},
		func(on Base, ctx context.Context, id chat.ID, f chat.ArchiveFilter) (chat.ArchiveList, error) {
			f.Chat = id // checked, as the one in the arguments is not
			all, err := on.Archives(ctx, f)
			return chat.ArchiveList{Archives: append([]chat.Archive{}, all...)}, err
		})
	verifyArchive = add(Route{"verify_archive", "POST", "/v1/archives/{name}/verify", Bridges, Nothing, 200,
		"Read an archive. One that is not whole is an error. The answer may take hours."},
		named(Base.VerifyArchive))
	unarchive = add(Route{"unarchive", "POST", "/v1/archives/{name}/unarchive", Bridges, Nothing, 200,
		"Make a chat of an archive again, asleep: its id is the same, its uid is new. The answer " +
			"may take hours; a client that goes away ends it."}, named(Base.Unarchive))
	removeArchive = add(Route{"remove_archive", "DELETE", "/v1/archives/{name}", Bridges, Nothing, 204,
		"Remove an archive for ever."},
		named(func(on Base, ctx context.Context, name chat.ArchiveName) (None, error) {
			return None{}, on.RemoveArchive(ctx, name)
		}))
)

type byName[R any] = func(Base, context.Context, chat.ArchiveName) (R, error)

// named is a method that takes the name of an archive. Callers, and a front, may send anything in its
// place, and chatd-root makes paths of it.
func named[R any](do byName[R]) Method[Base, chat.ArchiveName, R] {
	return func(on Base, ctx context.Context, _ chat.ID, a chat.ArchiveName) (r R, err error) {
		if a, err = chat.ParseArchiveName(string(a)); err != nil {
			return r, err
		}
		return do(on, ctx, a)
	}
}

func (c Calls) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	return archive.Call(ctx, c, id, how)
}

func (c Calls) Archives(ctx context.Context, f chat.ArchiveFilter) ([]chat.Archive, error) {
	l, err := archives.Call(ctx, c, f.Chat, f)
	return l.Archives, err
}

func (c Calls) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	return verifyArchive.Call(ctx, c, "", name)
}

func (c Calls) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	return unarchive.Call(ctx, c, "", name)
}

func (c Calls) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	return removeArchive.Do(ctx, c, "", name)
}
