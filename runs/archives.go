package runs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Archive is [broker.Chats]. The schedules are in the archive, and come due no more.
func (c *Chats) Archive(
	ctx context.Context, id chat.ID, how chat.ToArchive,
) (chat.Archive, error) {
	a, err := c.root.Archive(ctx, id, how)
	if err == nil && !how.Keep {
		c.runner.RemoveChat(id)
	}
	return a, err
}

// Unarchive is [broker.Chats]. The schedules come due again; a time that passed meanwhile is
// missed, as it is while chatd is down.
func (c *Chats) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	made, err := c.root.Unarchive(ctx, name)
	if err != nil {
		return made, err
	}
	// The caller may have gone just before the chat was there.
	all, err := c.root.Schedules(context.WithoutCancel(ctx), made.ID)
	if err != nil {
		c.log.Error("cannot load the schedules of an archive", "chat", made.ID, "error", err)
	}
	for _, s := range all.Schedules {
		if k, _, ok := c.kept(made.ID, s.ID); ok {
			c.load(k)
		}
	}
	return made, nil
}
