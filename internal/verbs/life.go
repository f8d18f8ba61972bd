package verbs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Life makes, finds, changes and removes chats.
type Life interface {
	// Create makes the chat of spec's owner and external id, or finds it. created says which.
	// c.Ignored lists the fields of spec in which a chat that was found differs. Any number of
	// callers may create the same chat simultaneously.
	Create(ctx context.Context, spec chat.Spec) (c chat.Chat, created bool, err error)
	// List returns one page; Page.Next is the cursor for the following one.
	List(ctx context.Context, filter chat.Filter) (chat.Page, error)
	// Get returns one chat as it is now.
	Get(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Patch changes a chat: see [chat.Patch].
	Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error)
	// Reap ends the chat and removes every trace of it.
	Reap(ctx context.Context, id chat.ID) error
	// Wake starts the chat's session if it has none.
	Wake(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Sleep ends the chat's processes and keeps its home.
	Sleep(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Freeze stops an awake chat's processes, which keep their memory: for its owner until its next
	// use, for an operator until Thaw.
	Freeze(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Thaw lets the processes of a frozen chat go on.
	Thaw(ctx context.Context, id chat.ID) (chat.Chat, error)
}

var lifeRows = []Row{{Route: Route{"create", "POST", "/v1/chats", Bridges, JSON, 201,
	"Create a chat, or find the one of this external id (200)."}}}

var (
	list = add(Route{"list", "GET", "/v1/chats", Bridges, Nothing, 200,
		"List the caller's chats; an operator's are all."},
		func(on Base, ctx context.Context, _ chat.ID, f chat.Filter) (chat.Page, error) {
			return on.List(ctx, f)
		})
	get = add(Route{"show", "GET", "/v1/chats/{id}", Bridges, Nothing, 200,
		"Show one chat."}, OfChat(Base.Get))
	patch = add(Route{"patch", "PATCH", "/v1/chats/{id}", Bridges, JSON, 200,
		"Change a chat by a JSON merge patch (RFC 7396), as a whole or not at all. " +
			"changed in the answer says what holds now and what from the next wake."},
		Base.Patch)
	reap = add(Route{"reap", "DELETE", "/v1/chats/{id}", Bridges, Nothing, 204,
		"End a chat and remove every trace of it; with archive=true, archive it first (200)."},
		func(on Base, ctx context.Context, id chat.ID, _ None) (None, error) {
			return None{}, on.Reap(ctx, id)
		})
	wake = add(Route{"wake", "POST", "/v1/chats/{id}/wake", Bridges, Nothing, 200,
		"Give a chat a session."}, OfChat(Base.Wake))
	sleep = add(Route{"sleep", "POST", "/v1/chats/{id}/sleep", Bridges, Nothing, 200,
		"End a chat's processes and keep its home."}, OfChat(Base.Sleep))
	freeze = add(Route{"freeze", "POST", "/v1/chats/{id}/freeze", Bridges, Nothing, 200,
		"Stop an awake chat's processes, which keep their memory: for its owner until its next use, " +
			"for an operator until thaw."}, OfChat(Base.Freeze))
	thaw = add(Route{"thaw", "POST", "/v1/chats/{id}/thaw", Bridges, Nothing, 200,
		"Let a frozen chat's processes go on. One that an operator froze is thawed by operators alone."},
		OfChat(Base.Thaw))
)

func (c Calls) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	return list.Call(ctx, c, "", f)
}

func (c Calls) Get(ctx context.Context, id chat.ID) (chat.Chat, error) { return get.Of(ctx, c, id) }

func (c Calls) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	return patch.Call(ctx, c, id, p)
}

func (c Calls) Reap(ctx context.Context, id chat.ID) error { return reap.Do(ctx, c, id, None{}) }

func (c Calls) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) { return wake.Of(ctx, c, id) }

func (c Calls) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) { return sleep.Of(ctx, c, id) }

func (c Calls) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return freeze.Of(ctx, c, id)
}

func (c Calls) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) { return thaw.Of(ctx, c, id) }
