package api

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Chats is what can be done to chats. provision.Manager does it, [Client] asks a
// daemon to. Who asks is in the context, see [chat.CallerFrom]: a chat that the
// caller may not reach is [chat.ErrNotFound], as one that does not exist.
type Chats interface {
	// Create makes the chat of spec's owner and external id, or finds it; created
	// says which. Any number of callers may create the same one at once.
	Create(ctx context.Context, spec chat.Spec) (c chat.Chat, created bool, err error)
	// List returns one page; Page.Next is the cursor for the following one.
	List(ctx context.Context, filter chat.Filter) (chat.Page, error)
	// Get returns one chat as it is now.
	Get(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Reap ends the chat and removes every trace of it.
	Reap(ctx context.Context, id chat.ID) error
	// Wake gives the chat a session; one that has a session keeps it.
	Wake(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Sleep ends the chat's processes and keeps its home.
	Sleep(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Run runs one command inside the chat and returns when it has ended.
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error)
	// Input types into the chat's terminal.
	Input(ctx context.Context, id chat.ID, in chat.Input) error
	// Screen returns what the chat's terminal shows.
	Screen(ctx context.Context, id chat.ID) (chat.Screen, error)
	// Host describes the machine and its walls.
	Host(ctx context.Context) (chat.Host, error)
}

var _ Chats = (*Client)(nil)
