package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// The verbs of the table whose arguments or answers differ from those of the API.

type (
	createAnswer struct {
		Chat chat.Chat `json:"chat"`
		Made bool      `json:"made"`
	}
	// namedQuestion has the paths that the front found in a command, as namedRun.
	namedQuestion struct {
		chat.Question
		Named []chat.NamedPath `json:"named,omitempty"`
	}
	typedAnswer struct {
		chat.Typed
		Output *chat.Span `json:"output,omitempty"` // not in the API
	}
)

var (
	create = verb("create",
		func(c *call, ctx context.Context, _ chat.ID, s chat.Spec) (createAnswer, error) {
			made, created, err := c.Create(ctx, s)
			return createAnswer{made, created}, err
		})
	explain = verb("explain",
		func(c *call, ctx context.Context, id chat.ID, a namedQuestion) (chat.Explained, error) {
			a.Question.Named = a.Named
			return c.Explain(ctx, id, a.Question)
		})
	inputWait = verb("input_wait",
		func(c *call, ctx context.Context, id chat.ID, in chat.Input) (typedAnswer, error) {
			t, err := c.InputWait(ctx, id, in)
			return typedAnswer{t, t.Output}, err
		})
	log       = verb("log", (*call).Log)
	followLog = verb("follow_log",
		func(c *call, ctx context.Context, id chat.ID, since int64) (none, error) {
			return none{}, c.FollowLog(ctx, id, since, func(l chat.Log) error { return c.frame(l) })
		})
)

func (c *Client) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	a, err := create.Call(ctx, c.Calls, "", spec)
	return a.Chat, a.Made, err
}

func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return explain.Call(ctx, c.Calls, id, namedQuestion{q, q.Named})
}

func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	t, err := inputWait.Call(ctx, c.Calls, id, in)
	t.Typed.Output = t.Output
	return t.Typed, err
}

func (c *Client) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	return log.Call(ctx, c.Calls, id, since)
}

func (c *Client) FollowLog(ctx context.Context, id chat.ID, n int64, out func(chat.Log) error) error {
	_, err := callWith(ctx, c, followLog, id, n, hooks{on: values(out)})
	return err
}
