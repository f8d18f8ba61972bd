//go:build !linux

package broker

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
)

// chatd-root and its front run on Linux only: elsewhere neither end of a call exists.
type (
	// Client is the front's end of the control socket.
	Client struct{}
	call   struct {
		message
		root   Root
		lists  chan struct{}
		listed bool
	}
	hooks struct{ on func(kind, []byte) error }
)

func (*call) frame(any) error { return errors.ErrUnsupported }

func (v verb[A, R]) ask(ctx context.Context, c *Client, id chat.ID, a A) (R, error) {
	return v.askWith(ctx, c, id, a, hooks{})
}

func (verb[A, R]) askWith(context.Context, *Client, chat.ID, A, hooks) (r R, err error) {
	return r, errors.ErrUnsupported
}
