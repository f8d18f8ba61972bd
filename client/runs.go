package client

import (
	"context"
	"io"

	"github.com/chatd/chatd/chat"
)

// Run returns when the command has ended, and ending ctx ends the command.
func (c *Client) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (r chat.RunResult, err error) {
	err = c.call(ctx, "run", id, spec, &r)
	return r, err
}

// StartRun is Run in the background.
func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (r chat.Run, err error) {
	spec.Background = true
	err = c.call(ctx, "run", id, spec, &r)
	return r, err
}

// ReadRun returns the output of a background run from the cursor on.
func (c *Client) ReadRun(
	ctx context.Context, id chat.ID, run, cursor string,
) (out chat.RunOutput, err error) {
	err = c.callIn(ctx, "run_output", id, run, fromCursor{cursor}, &out)
	return out, err
}

type fromCursor struct {
	Cursor string `json:"cursor,omitempty"`
}

// FollowRun passes the output of a background run to out; ending ctx ends only that.
func (c *Client) FollowRun(
	ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame),
) (chat.RunResult, error) {
	return c.framed(ctx, "run_output", id, run, fromCursor{cursor}, out)
}

// SignalRun sends a signal to every process of a run.
func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	return c.callIn(ctx, "run_signal", id, run, s, nil)
}

// WriteStdin sends body to a run's standard input. It holds one piece of body at a time.
func (c *Client) WriteStdin(
	ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool,
) error {
	r, err := requestOf("run_stdin", id, run, struct {
		Close bool `json:"close"`
	}{last})
	if err != nil {
		return err
	}
	r.head.Set("Content-Type", ByteType)
	r.body = body
	_, err = c.do(ctx, r, nil)
	return err
}
