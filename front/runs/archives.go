package runs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Archive is [verbs.Chats]. The schedules are in the archive, and come due no more.
func (c *Chats) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	a, err := c.root.Archive(ctx, id, how)
	if err == nil && !how.Keep {
		c.runner.RemoveChat(id)
	}
	return a, err
}

// Unarchive is [verbs.Chats]. The schedules come due again; a time that passed meanwhile is
// missed, as it is while chatd is down.
func (c *Chats) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	made, err := c.root.Unarchive(ctx, name)
	if err != nil {
		return made, err
	}
	c.loadAll(ctx, made.ID)
	return made, nil
}

// loadAll adds the schedules of a chat of an archive to the clock.
func (c *Chats) loadAll(ctx context.Context, id chat.ID) {
	// The caller may have gone just before the chat was there.
	all, err := c.root.Schedules(context.WithoutCancel(ctx), id)
	if err != nil {
		c.log.Error("cannot load the schedules of an archive", "chat", id, "error", err)
	}
	for _, s := range all.Schedules {
		if k, _, ok := c.kept(id, s.ID); ok {
			c.load(k)
		}
	}
}

// Create is [verbs.Chats]. It may unarchive.
func (c *Chats) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	made, created, err := c.root.Create(ctx, spec)
	if err == nil && spec.Unarchive && !created && !c.runner.Has(made.ID) {
		c.loadAll(ctx, made.ID)
	}
	return made, created, err
}
