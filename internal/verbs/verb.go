package verbs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Verb is the name of a verb, with the types of its arguments and its answer.
type Verb[A, R any] string

// Calls makes one call of a verb: over the control socket to chatd-root, or over HTTP to the daemon.
// answer is nil for an answer that says only that the call succeeded.
type Calls func(ctx context.Context, verb string, id chat.ID, args, answer any) error

// Call calls the verb.
func (v Verb[A, R]) Call(ctx context.Context, c Calls, id chat.ID, a A) (r R, err error) {
	into := any(&r)
	if _, none := into.(*None); none {
		into = nil
	}
	err = c(ctx, string(v), id, a, into)
	return r, err
}

// Of is Call for a verb without arguments.
func (v Verb[A, R]) Of(ctx context.Context, c Calls, id chat.ID) (R, error) {
	var none A
	return v.Call(ctx, c, id, none)
}

// Do is Call for a verb whose answer is only whether it succeeded.
func (v Verb[A, R]) Do(ctx context.Context, c Calls, id chat.ID, a A) error {
	_, err := v.Call(ctx, c, id, a)
	return err
}

// None stands for no arguments and for no answer.
type None = struct{}

// Handler serves a verb on the chats of one side. read decodes the arguments.
type Handler[On any] func(
	ctx context.Context, on On, id chat.ID, read func(args any) error,
) (answer any, err error)

// Method is a method of On that serves a verb.
type Method[On, A, R any] func(on On, ctx context.Context, id chat.ID, a A) (R, error)

// Bind makes a handler of a method.
func Bind[On, A, R any](do Method[On, A, R]) Handler[On] {
	return func(ctx context.Context, on On, id chat.ID, read func(any) error) (any, error) {
		var a A
		if err := read(&a); err != nil {
			return nil, err
		}
		return do(on, ctx, id, a)
	}
}

// The methods of interfaces take less than a chat and arguments, or answer less. These fill the rest.

// OfChat is a method that takes only a chat.
func OfChat[On, R any](do func(On, context.Context, chat.ID) (R, error)) Method[On, None, R] {
	return func(on On, ctx context.Context, id chat.ID, _ None) (R, error) { return do(on, ctx, id) }
}

// Order is a method without an answer.
func Order[On, A any](do func(On, context.Context, chat.ID, A) error) Method[On, A, None] {
	return func(on On, ctx context.Context, id chat.ID, a A) (None, error) {
		return None{}, do(on, ctx, id, a)
	}
}

// ofHost is a method that takes nothing.
func ofHost[On, R any](do func(On, context.Context) (R, error)) Method[On, None, R] {
	return func(on On, ctx context.Context, _ chat.ID, _ None) (R, error) { return do(on, ctx) }
}
