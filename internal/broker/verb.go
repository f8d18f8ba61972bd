package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// verb is one method of [Root] at both ends of a call: [Calls] sends this name, and [Server] finds
// its handler by it. A and R are the types of its arguments and its answer.
type verb[A, R any] string

// plainVerb is the verb of a method that takes only a chat.
type plainVerb[R any] string

// Calls makes one call of a verb, and so is every method of [Base] whose arguments and answer are
// alike over the control socket ([Client]) and over the API (package api's client). The verb is the
// name of the API's route. answer is nil for an answer that says only that the call succeeded.
type Calls func(ctx context.Context, verb string, id chat.ID, args, answer any) error

// handler serves one call and returns its answer.
type handler func(ctx context.Context, c *call) (any, error)

// handlers are all verbs that a front may call, by name.
var handlers = map[string]handler{}

// verbFunc makes a verb: its handler decodes the arguments and calls do.
func verbFunc[A, R any](name string, do func(context.Context, *call, A) (R, error)) verb[A, R] {
	handlers[name] = func(ctx context.Context, c *call) (any, error) {
		var a A
		if err := decode(c.Args, &a); err != nil {
			return nil, err
		}
		return do(ctx, c, a)
	}
	return verb[A, R](name)
}

// chatVerb is the verb of a method that takes only a chat.
func chatVerb[R any](name string, do func(Root, context.Context, chat.ID) (R, error)) plainVerb[R] {
	return plainVerb[R](verbFunc(name, func(ctx context.Context, c *call, _ nothing) (R, error) {
		return do(c.root, ctx, c.Chat)
	}))
}

// chatVerbArg is the verb of a method that takes a chat and one argument.
func chatVerbArg[A, R any](name string, do func(Root, context.Context, chat.ID, A) (R, error)) verb[A, R] {
	return verbFunc(name, func(ctx context.Context, c *call, a A) (R, error) {
		return do(c.root, ctx, c.Chat, a)
	})
}

// chatOrder is the verb of such a method without an answer.
func chatOrder[A any](name string, do func(Root, context.Context, chat.ID, A) error) verb[A, nothing] {
	return verbFunc(name, func(ctx context.Context, c *call, a A) (nothing, error) {
		return nothing{}, do(c.root, ctx, c.Chat, a)
	})
}

// hostVerb is the verb of a method that takes nothing.
func hostVerb[R any](name string, do func(Root, context.Context) (R, error)) plainVerb[R] {
	return plainVerb[R](verbFunc(name, func(ctx context.Context, c *call, _ nothing) (R, error) {
		return do(c.root, ctx)
	}))
}

func (v verb[A, R]) call(ctx context.Context, c Calls, id chat.ID, a A) (r R, err error) {
	err = c(ctx, string(v), id, a, &r)
	return r, err
}

func (v verb[A, R]) callWith(
	ctx context.Context, c *Client, id chat.ID, a A, h hooks,
) (r R, err error) {
	err = c.callWith(ctx, string(v), id, a, &r, h)
	return r, err
}

// order makes a call whose answer is only whether it succeeded.
func (v verb[A, R]) order(ctx context.Context, c Calls, id chat.ID, a A) error {
	return c(ctx, string(v), id, a, nil)
}

func (v plainVerb[R]) call(ctx context.Context, c Calls, id chat.ID) (R, error) {
	return verb[nothing, R](v).call(ctx, c, id, nothing{})
}
