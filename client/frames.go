package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// RunTo is POST /v1/chats/{id}/runs with the output as it comes; ending ctx ends the run.
func (c *Client) RunTo(
	ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output,
) (chat.RunResult, error) {
	return c.runFrames(ctx, "run", id, spec, spec.Started, out)
}

// Attach is POST /v1/chats/{id}/attach; ending ctx lets go of the terminal.
func (c *Client) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, out chat.Output,
) (chat.RunResult, error) {
	return c.runFrames(ctx, "attach", id, a, a.Started, out)
}

// runFrames makes a run that lasts as long as ctx; started, if not nil, gets its id.
func (c *Client) runFrames(
	ctx context.Context, verb string, id chat.ID, in any, started func(string), out chat.Output,
) (chat.RunResult, error) {
	return c.framed(ctx, verb, id, "", in, func(f chat.Frame) {
		switch {
		case f.Run == "":
			out(f.Stream, f.Bytes())
		case started != nil:
			started(f.Run)
		}
	})
}

// framed gives the frames of an answer to out, and returns how the run ended.
func (c *Client) framed(
	ctx context.Context, verb string, id chat.ID, name string, args any, out func(chat.Frame),
) (chat.RunResult, error) {
	res, err := c.sendFor(ctx, verb, id, name, args, FrameType)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer res.Body.Close()
	return readFrames(res.Body, out)
}

// readFrames gives each piece to out, and returns how the run ended.
func readFrames(r io.Reader, out func(chat.Frame)) (chat.RunResult, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxFrame)
	for lines.Scan() {
		var f struct {
			chat.Frame
			Error *Problem `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return chat.RunResult{}, fmt.Errorf("cannot read chatd's answer: %w", err)
		}
		switch {
		case f.Error != nil:
			return chat.RunResult{}, f.Error
		case f.Result != nil:
			if f.DroppedBytes > 0 {
				f.Result.Truncated = true
			}
			return *f.Result, nil
		}
		out(f.Frame)
	}
	err := lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return chat.RunResult{}, fmt.Errorf("cannot read the run to its end: %w", err)
}
