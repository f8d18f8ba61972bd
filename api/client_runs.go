package api

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"

	"github.com/chatd/chatd/chat"
)

// runPath is a path of one run. What could be another path is no run's id.
func runPath(id chat.ID, run, rest string) (string, error) {
	if _, err := chat.ParseID(string(id)); err != nil {
		return "", err
	}
	if run == "" || len(run) > chat.MaxName || !plainPath("/"+run) {
		return "", chat.NoRun(id, run)
	}
	return "/v1/chats/" + string(id) + "/runs/" + run + rest, nil
}

func (c *Client) doRun(ctx context.Context, method string, id chat.ID, run, rest string, in, out any) error {
	path, err := runPath(id, run, rest)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, method, path, in, out)
	return err
}

// StartRun is POST /v1/chats/{id}/runs with background.
func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (out chat.Run, err error) {
	spec.Background = true
	err = c.doID(ctx, "POST", id, "/runs", spec, &out)
	return out, err
}

// Runs is GET /v1/chats/{id}/runs.
func (c *Client) Runs(ctx context.Context, id chat.ID) (out chat.Runs, err error) {
	err = c.doID(ctx, "GET", id, "/runs", nil, &out)
	return out, err
}

// ShowRun is GET /v1/chats/{id}/runs/{run}.
func (c *Client) ShowRun(ctx context.Context, id chat.ID, run string) (out chat.Run, err error) {
	err = c.doRun(ctx, "GET", id, run, "", nil, &out)
	return out, err
}

// EndRun is DELETE /v1/chats/{id}/runs/{run}.
func (c *Client) EndRun(ctx context.Context, id chat.ID, run string) error {
	return c.doRun(ctx, "DELETE", id, run, "", nil, nil)
}

// SignalRun is POST /v1/chats/{id}/runs/{run}/signal.
func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	return c.doRun(ctx, "POST", id, run, "/signal", s, nil)
}

// ReadRun is GET /v1/chats/{id}/runs/{run}/output.
func (c *Client) ReadRun(ctx context.Context, id chat.ID, run, cursor string) (out chat.RunOutput, err error) {
	err = c.doRun(ctx, "GET", id, run, "/output?cursor="+url.QueryEscape(cursor), nil, &out)
	return out, err
}

// FollowRun is GET /v1/chats/{id}/runs/{run}/output as it comes; ending ctx ends nothing but that.
func (c *Client) FollowRun(ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame)) (chat.RunResult, error) {
	path, err := runPath(id, run, "/output?cursor="+url.QueryEscape(cursor))
	if err != nil {
		return chat.RunResult{}, err
	}
	return c.framed(ctx, "GET", path, nil, out)
}

// WriteStdin is POST /v1/chats/{id}/runs/{run}/stdin. It holds no more of body than a piece.
func (c *Client) WriteStdin(ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool) (err error) {
	path, err := runPath(id, run, "/stdin?close="+strconv.FormatBool(last))
	if err != nil {
		return err
	}
	resp, err := c.sendBody(ctx, "POST", path, map[string]string{"Content-Type": byteType}, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return decode(resp, nil)
}
