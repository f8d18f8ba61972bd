package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
)

// maxAnswer bounds what the client reads of one answer: two streams of a run, of
// [chat.MaxOutputMax] each, may take six times that in JSON, a page of chats less.
const maxAnswer = 64 << 20

// ClientOptions says where the daemon is.
type ClientOptions struct {
	// Socket is the path of the daemon's unix socket.
	Socket string
}

// Client asks a daemon. It satisfies [Chats]; the daemon takes the caller from
// the socket and ignores the one in the context. Its errors are [*Problem] where
// the daemon answered, so that errors.Is finds the errors of package chat; a
// socket that is not there or refuses is [chat.ErrBusy], for a daemon that is
// being restarted answers later, and wraps the cause (fs.ErrNotExist,
// ECONNREFUSED). It may be used by many goroutines.
type Client struct {
	http   *http.Client
	socket string
}

// NewClient prepares a client; it connects on the first request.
func NewClient(opt ClientOptions) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", opt.Socket)
	}
	return &Client{
		socket: opt.Socket,
		http: &http.Client{
			Transport:     &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ExpectContinueTimeout: 5 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Create is POST /v1/chats; created is status 201.
func (c *Client) Create(ctx context.Context, spec chat.Spec) (out chat.Chat, created bool, err error) {
	status, err := c.do(ctx, "POST", "/v1/chats", spec, &out)
	return out, status == http.StatusCreated, err
}

// List is GET /v1/chats.
func (c *Client) List(ctx context.Context, f chat.Filter) (out chat.Page, err error) {
	q := url.Values{}
	for k, v := range map[string]string{"owner": f.Owner, "external_id": f.ExternalID, "label": f.Label, "cursor": f.Cursor} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if f.Awake != nil {
		q.Set("awake", strconv.FormatBool(*f.Awake))
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	path := "/v1/chats"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	_, err = c.do(ctx, "GET", path, nil, &out)
	return out, err
}

// Get is GET /v1/chats/{id}.
func (c *Client) Get(ctx context.Context, id chat.ID) (out chat.Chat, err error) {
	err = c.doID(ctx, "GET", id, "", nil, &out)
	return out, err
}

// Patch is PATCH /v1/chats/{id}.
func (c *Client) Patch(ctx context.Context, id chat.ID, p chat.Patch) (out chat.Chat, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	err = c.doID(ctx, "PATCH", id, "", p, &out)
	return out, err
}

// Reap is DELETE /v1/chats/{id}.
func (c *Client) Reap(ctx context.Context, id chat.ID) error {
	return c.doID(ctx, "DELETE", id, "", nil, nil)
}

// Wake is POST /v1/chats/{id}/wake.
func (c *Client) Wake(ctx context.Context, id chat.ID) (out chat.Chat, err error) {
	err = c.doID(ctx, "POST", id, "/wake", nil, &out)
	return out, err
}

// Sleep is POST /v1/chats/{id}/sleep.
func (c *Client) Sleep(ctx context.Context, id chat.ID) (out chat.Chat, err error) {
	err = c.doID(ctx, "POST", id, "/sleep", nil, &out)
	return out, err
}

// Run is POST /v1/chats/{id}/runs; it returns when the command has ended, and
// ending ctx ends the command.
func (c *Client) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (out chat.RunResult, err error) {
	err = c.doID(ctx, "POST", id, "/runs", spec, &out)
	return out, err
}

// Input is POST /v1/chats/{id}/input.
func (c *Client) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	return c.doID(ctx, "POST", id, "/input", in, nil)
}

// InputWait is POST /v1/chats/{id}/input with a wait.
func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (out chat.Typed, err error) {
	if in.Wait == nil {
		return out, fmt.Errorf("cannot wait: no wait is given: %w", chat.ErrInvalid)
	}
	err = c.doID(ctx, "POST", id, "/input", in, &out)
	return out, err
}

// ScreenWith is GET /v1/chats/{id}/screen?styles=…&history=….
func (c *Client) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (out chat.Screen, err error) {
	if err := spec.Validate(); err != nil {
		return out, err
	}
	err = c.doID(ctx, "GET", id, fmt.Sprintf("/screen?styles=%t&history=%d", spec.Styles, spec.History), nil, &out)
	return out, err
}

// Screen is GET /v1/chats/{id}/screen.
func (c *Client) Screen(ctx context.Context, id chat.ID) (out chat.Screen, err error) {
	err = c.doID(ctx, "GET", id, "/screen", nil, &out)
	return out, err
}

// Plan is GET /v1/chats/{id}/plan.
func (c *Client) Plan(ctx context.Context, id chat.ID) (out chat.Plan, err error) {
	err = c.doID(ctx, "GET", id, "/plan", nil, &out)
	return out, err
}

// Host is GET /v1/host.
func (c *Client) Host(ctx context.Context) (out chat.Host, err error) {
	_, err = c.do(ctx, "GET", "/v1/host", nil, &out)
	return out, err
}

// Status is GET /v1/status.
func (c *Client) Status(ctx context.Context) (out chat.Status, err error) {
	_, err = c.do(ctx, "GET", "/v1/status", nil, &out)
	return out, err
}

func (c *Client) doID(ctx context.Context, method string, id chat.ID, rest string, in, out any) error {
	if _, err := chat.ParseID(string(id)); err != nil {
		return err
	}
	_, err := c.do(ctx, method, "/v1/chats/"+string(id)+rest, in, out)
	return err
}

// do sends in as JSON, if there is any, and reads the answer into out.
func (c *Client) do(ctx context.Context, method, path string, in, out any) (status int, err error) {
	resp, err := c.send(ctx, method, path, "", in)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return resp.StatusCode, decode(resp, out)
}

// send sends in as JSON, if there is any; accept is the answer that is wanted, if it is
// not the usual one. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, method, path, accept string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("cannot write the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	head := map[string]string{}
	if in != nil {
		head["Content-Type"] = jsonType
	}
	if accept != "" {
		head["Accept"] = accept
	}
	return c.sendBody(ctx, method, path, head, body)
}

// sendFor is send for an answer of the type accept and of no other. The caller closes its body.
func (c *Client) sendFor(ctx context.Context, method, path, accept string, in any) (*http.Response, error) {
	resp, err := c.send(ctx, method, path, accept, in)
	if err != nil {
		return nil, err
	}
	if t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && t == accept {
		return resp, nil
	}
	err = decode(resp, nil)
	if err == nil {
		err = fmt.Errorf("cannot read chatd's answer: it is no %s", accept)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

// sendBody sends body as it is. The caller closes the answer's body.
func (c *Client) sendBody(ctx context.Context, method, path string, head map[string]string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://chatd"+path, body)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	for name, value := range head {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return resp, nil
}

func (c *Client) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot reach chatd at %s: %w: %w", c.socket, err, chat.ErrDenied)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot reach chatd at %s: %w; is chatd running there? %w", c.socket, err, chat.ErrBusy)
	}
	return fmt.Errorf("cannot reach chatd at %s: %w", c.socket, err)
}

// decode reads a JSON answer into out, or a problem into the error.
func decode(resp *http.Response, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("cannot read chatd's answer: %w", err)
	case len(b) > maxAnswer:
		return fmt.Errorf("cannot read chatd's answer: more than %d bytes", maxAnswer)
	}
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= http.StatusBadRequest {
		p := &Problem{}
		if err != nil || t != problemType || json.Unmarshal(b, p) != nil || p.Kind == "" {
			return fmt.Errorf("cannot read chatd's answer: status %d without a problem: %s", resp.StatusCode, chat.Quote(string(b)))
		}
		return p
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("cannot read chatd's answer: unexpected status %d", resp.StatusCode)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("cannot read chatd's answer: %w", err)
	}
	return nil
}
