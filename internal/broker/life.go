package broker

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

type createAnswer struct {
	Chat chat.Chat `json:"chat"`
	Made bool      `json:"made"`
}

var (
	create = verbFunc("create", func(ctx context.Context, c *call, s chat.Spec) (createAnswer, error) {
		made, is, err := c.root.Create(ctx, s)
		return createAnswer{made, is}, err
	})
	list = verbFunc("list", func(ctx context.Context, c *call, f chat.Filter) (chat.Page, error) {
		c.lists <- struct{}{}
		c.listed = true
		return c.root.List(ctx, f)
	})
	get   = chatVerb("show", Root.Get)
	patch = chatVerbArg("patch", Root.Patch)
	reap  = verbFunc("reap", func(ctx context.Context, c *call, _ nothing) (nothing, error) {
		return nothing{}, c.root.Reap(ctx, c.Chat)
	})
	wake   = chatVerb("wake", Root.Wake)
	sleep  = chatVerb("sleep", Root.Sleep)
	freeze = chatVerb("freeze", Root.Freeze)
	thaw   = chatVerb("thaw", Root.Thaw)
)

// List returns one page of the caller's chats.
func (c Calls) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	return list.call(ctx, c, "", f)
}

// Get returns one chat as it is now.
func (c Calls) Get(ctx context.Context, id chat.ID) (chat.Chat, error) { return get.call(ctx, c, id) }

// Reap ends a chat and removes every trace of it.
func (c Calls) Reap(ctx context.Context, id chat.ID) error { return reap.order(ctx, c, id, nothing{}) }

// Wake starts a chat's session if it has none.
func (c Calls) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) { return wake.call(ctx, c, id) }

// Sleep ends a chat's processes and keeps its home.
func (c Calls) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return sleep.call(ctx, c, id)
}

// Freeze stops an awake chat's processes, which keep their memory.
func (c Calls) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return freeze.call(ctx, c, id)
}

// Thaw lets the processes of a frozen chat go on.
func (c Calls) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) { return thaw.call(ctx, c, id) }

func (c *Client) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	r, err := create.call(ctx, c.Calls, "", spec)
	return r.Chat, r.Made, err
}

func (c *Client) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	return patch.call(ctx, c.Calls, id, p)
}
