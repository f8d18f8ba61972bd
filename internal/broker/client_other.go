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
	Client struct{ Calls }
	call   struct {
		message
		root   Root
		lists  chan struct{}
		listed bool
	}
	hooks struct{ on func(kind, []byte) error }
)

func (*call) frame(any) error { return errors.ErrUnsupported }

func (*Client) callWith(context.Context, string, chat.ID, any, any, hooks) error {
	return errors.ErrUnsupported
}
