package broker

import (
	"context"
	"slices"

	"github.com/chatd/chatd/chat"
)

// verb is one method of [Root] at both ends of a call: [Client] sends its name, and [Server] calls
// do. A and R are the types of its arguments and its answer.
type verb[A, R any] struct {
	name string
	do   func(ctx context.Context, c *call, a A) (R, error)
}

func by[A, R any](name string, do func(ctx context.Context, c *call, a A) (R, error)) verb[A, R] {
	return verb[A, R]{name, do}
}

// of is the verb of a method that takes a chat and one argument.
func of[A, R any](name string, do func(Root, context.Context, chat.ID, A) (R, error)) verb[A, R] {
	return by(name, func(ctx context.Context, c *call, a A) (R, error) {
		return do(c.root, ctx, c.Chat, a)
	})
}

// doing is such a method without an answer.
func doing[A any](name string, do func(Root, context.Context, chat.ID, A) error) verb[A, nothing] {
	return by(name, func(ctx context.Context, c *call, a A) (nothing, error) {
		return nothing{}, do(c.root, ctx, c.Chat, a)
	})
}

// plain is the verb of a method that takes only a chat.
func plain[R any](name string, do func(Root, context.Context, chat.ID) (R, error)) verb[nothing, R] {
	return by(name, func(ctx context.Context, c *call, _ nothing) (R, error) {
		return do(c.root, ctx, c.Chat)
	})
}

// order makes a call that has no answer.
func (v verb[A, R]) order(ctx context.Context, c *Client, id chat.ID, a A) error {
	_, err := v.ask(ctx, c, id, a)
	return err
}

// handler serves one call and returns its answer.
type handler func(ctx context.Context, c *call) (any, error)

// handler returns the verb's name, and a handler that decodes the arguments and calls do.
func (v verb[A, R]) handler() (name string, do handler) {
	return v.name, func(ctx context.Context, c *call) (any, error) {
		var a A
		if err := decode(c.Args, &a); err != nil {
			return nil, err
		}
		return v.do(ctx, c, a)
	}
}

// verbs are the verbs of one topic.
type verbs []interface{ handler() (string, handler) }

// byName is the table of all topics.
func byName(topics ...verbs) map[string]handler {
	table := map[string]handler{}
	for _, v := range slices.Concat(topics...) {
		name, do := v.handler()
		table[name] = do
	}
	return table
}
