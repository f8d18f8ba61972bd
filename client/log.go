package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// logQuery is what of a log is asked for; without Since, from the first byte that is kept.
type logQuery struct {
	Since  *int64 `json:"since,omitempty"`
	Follow bool   `json:"follow,omitempty"`
}

func since(cursor int64) (q logQuery) {
	if cursor >= 0 {
		q.Since = &cursor
	}
	return q
}

// Log returns a piece of the terminal's output; from below 0, the first byte that is kept.
func (c *Client) Log(ctx context.Context, id chat.ID, from int64) (l chat.Log, err error) {
	err = c.call(ctx, "log", id, since(from), &l)
	return l, err
}

// FollowLog is GET /v1/chats/{id}/log?follow=true. If the connection breaks, it returns the error;
// the last piece's cursor resumes the log.
func (c *Client) FollowLog(ctx context.Context, id chat.ID, from int64, out func(chat.Log) error) error {
	q := since(from)
	q.Follow = true
	res, err := c.sendFor(ctx, "log", id, "", q, EventType)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return readEvents(res.Body, out)
}

// readEvents gives each piece to out, until out has an error or the stream ends, which is
// always an error too.
func readEvents(r io.Reader, out func(chat.Log) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	problem := false
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "event":
			problem = string(value) == ProblemEvent
		case "data":
			if problem {
				p := &Problem{}
				return errors.Join(json.Unmarshal(value, p), p)
			}
			var l chat.Log
			if err := json.Unmarshal(value, &l); err != nil {
				return fmt.Errorf("cannot read chatd's answer: %w", err)
			}
			if err := out(l); err != nil {
				return err
			}
		case "": // the end of an event, or a comment
			problem = false
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot follow the log any more: %w", err)
	}
	return fmt.Errorf("cannot follow the log any more: %w: %w", io.ErrUnexpectedEOF, chat.ErrBusy)
}
