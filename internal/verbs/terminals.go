package verbs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Terminals types into chats' terminals and reads them.
type Terminals interface {
	// Input types into the chat's terminal.
	Input(ctx context.Context, id chat.ID, in chat.Input) error
	// InputWait is Input that waits, as in.Wait says, and returns the output since the input.
	InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error)
	// Screen returns the screen of the chat's terminal.
	Screen(ctx context.Context, id chat.ID) (chat.Screen, error)
	// ScreenWith is Screen with the colours and the scrolled-off lines that spec asks for.
	ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error)
	// Log returns a piece of the terminal's output, from the cursor since on; below 0, from the
	// first byte that is kept.
	Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error)
	// FollowLog passes the pieces of Log to out as they are printed, and possibly empty pieces in
	// between. It ends with ctx, with out's error, or with the chat.
	FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error
}

var terminalRows = []Row{
	{Route: Route{"log", "GET", "/v1/chats/{id}/log", Bridges, Nothing, 200,
		"Read what the chat's terminal printed, from a cursor on; with follow=true, as server-sent events."}},
	{Route: Route{"attach", "POST", "/v1/chats/{id}/attach", Operators, JSON, 200,
		"Show the chat's terminal as it changes, in frames of a run, to which input and new sizes are sent."}},
}

var (
	send = add(Route{"send", "POST", "/v1/chats/{id}/input", Bridges, JSON, 204,
		"Type into the chat's terminal; with wait, answer with what was printed (200)."},
		Order(Base.Input))
	screen = add(Route{"screen", "GET", "/v1/chats/{id}/screen", Bridges, Nothing, 200,
		"Show what the chat's terminal shows."}, Base.ScreenWith)
)

func (c Calls) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	return send.Do(ctx, c, id, in)
}

func (c Calls) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return c.ScreenWith(ctx, id, chat.ScreenSpec{})
}

func (c Calls) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	if err := spec.Validate(); err != nil {
		return chat.Screen{}, err
	}
	return screen.Call(ctx, c, id, spec)
}
