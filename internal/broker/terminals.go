package broker

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

type (
	since struct {
		Since int64 `json:"since"`
	}
	typedAnswer struct {
		chat.Typed
		Output *chat.Span `json:"output,omitempty"` // not in the API
	}
)

var (
	input     = chatOrder("send", Root.Input)
	inputWait = verbFunc("input_wait", func(ctx context.Context, c *call, in chat.Input) (typedAnswer, error) {
		t, err := c.root.InputWait(ctx, c.Chat, in)
		return typedAnswer{t, t.Output}, err
	})
	screen  = chatVerbArg("screen", Root.ScreenWith)
	logFrom = verbFunc("log", func(ctx context.Context, c *call, a since) (chat.Log, error) {
		return c.root.Log(ctx, c.Chat, a.Since)
	})
	followLog = verbFunc("follow_log", func(ctx context.Context, c *call, a since) (nothing, error) {
		return nothing{}, c.root.FollowLog(ctx, c.Chat, a.Since, func(l chat.Log) error { return c.frame(l) })
	})
)

// Input types into a chat's terminal.
func (c Calls) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	return input.order(ctx, c, id, in)
}

// Screen returns the screen of a chat's terminal.
func (c Calls) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return c.ScreenWith(ctx, id, chat.ScreenSpec{})
}

// ScreenWith is Screen with the colours and the scrolled-off lines that spec asks for.
func (c Calls) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	if err := spec.Validate(); err != nil {
		return chat.Screen{}, err
	}
	return screen.call(ctx, c, id, spec)
}

func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	t, err := inputWait.call(ctx, c.Calls, id, in)
	t.Typed.Output = t.Output
	return t.Typed, err
}

func (c *Client) Log(ctx context.Context, id chat.ID, from int64) (chat.Log, error) {
	return logFrom.call(ctx, c.Calls, id, since{from})
}

func (c *Client) FollowLog(ctx context.Context, id chat.ID, n int64, out func(chat.Log) error) error {
	_, err := followLog.callWith(ctx, c, id, since{n}, hooks{on: values(out)})
	return err
}
