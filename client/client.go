package client

import (
	"bytes"
	"cmp"
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
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

var _ verbs.Chats = (*Client)(nil)

// ClientOptions says where the daemon is.
type ClientOptions struct {
	// Socket is the path of the daemon's unix socket.
	Socket string
}

// Client asks a daemon. It satisfies verbs.Chats; the daemon takes the caller from the socket and
// ignores the one in the context. Its errors are [*Problem] where the daemon answered, so that
// errors.Is finds the errors of package chat. A socket that is absent or refuses is [chat.ErrBusy],
// because a daemon that restarts answers later, and wraps the cause (fs.ErrNotExist, ECONNREFUSED).
// It may be used by many goroutines.
type Client struct {
	verbs.FrontCalls
	http   *http.Client
	socket string
}

// NewClient prepares a client; it connects on the first request.
func NewClient(opt ClientOptions) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", opt.Socket)
	}
	c := &Client{
		socket: opt.Socket,
		http: &http.Client{
			Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 16,
				IdleConnTimeout: time.Minute, ExpectContinueTimeout: 5 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.Calls = c.call
	return c
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is [verbs.Calls].
func (c *Client) call(ctx context.Context, verb string, id chat.ID, args, answer any) error {
	switch name := args.(type) {
	case string:
		return c.callIn(ctx, verb, id, name, verbs.None{}, answer)
	case chat.ArchiveName:
		return c.callIn(ctx, verb, id, string(name), verbs.None{}, answer)
	}
	return c.callIn(ctx, verb, id, "", args, answer)
}

// callIn is call for an object.
func (c *Client) callIn(
	ctx context.Context, verb string, id chat.ID, name string, args, answer any,
) error {
	r, err := requestOf(verb, id, name, args)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, r, answer)
	return err
}

// request is what a call sends: path with the query, and body, if it is not nil.
type request struct {
	method, path string
	head         http.Header
	body         io.Reader
}

// requestOf is the request of a verb about an object, if it has a name: its arguments go where the row
// has a place for them.
func requestOf(verb string, id chat.ID, name string, args any) (r request, err error) {
	row, _ := verbs.Find(verb)
	r = request{method: row.Method, head: http.Header{}}
	if r.path, err = row.At(id, name); err != nil {
		return r, err
	}
	if row.Body != verbs.JSON {
		query, err := queryOf(args)
		r.path += query
		return r, err
	}
	b, err := encode(args)
	if err != nil {
		return r, fmt.Errorf("cannot write the request: %w", err)
	}
	r.head.Set("Content-Type", JSONType)
	r.body = bytes.NewReader(b)
	return r, nil
}

// Create makes a chat, or finds it; created is status 201.
func (c *Client) Create(ctx context.Context, spec chat.Spec) (out chat.Chat, created bool, err error) {
	r, err := requestOf("create", "", "", spec)
	if err != nil {
		return out, false, err
	}
	status, err := c.do(ctx, r, &out)
	return out, status == http.StatusCreated, err
}

// InputWait types into the chat's terminal and waits, as in.Wait says.
func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (t chat.Typed, err error) {
	if in.Wait == nil {
		return t, chat.Invalid("cannot wait: no wait is given")
	}
	err = c.call(ctx, "send", id, in, &t)
	return t, err
}

// ReapArchived archives a chat and reaps it then. It may take hours, and ends with ctx.
func (c *Client) ReapArchived(ctx context.Context, id chat.ID) (a chat.Archive, err error) {
	how := struct {
		Archive bool `json:"archive"`
	}{true}
	err = c.call(ctx, "reap", id, how, &a)
	return a, err
}

// queryOf is a query with the fields that args have in JSON.
func queryOf(args any) (string, error) {
	text, err := encode(args)
	fields, q := map[string]any{}, url.Values{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = cmp.Or(err, d.Decode(&fields)); err != nil {
		return "", fmt.Errorf("cannot write the query: %w", err)
	}
	for name, value := range fields {
		q.Set(name, fmt.Sprint(value))
	}
	if len(q) == 0 {
		return "", nil
	}
	return "?" + q.Encode(), nil
}

// do sends a request, and reads the answer into out.
func (c *Client) do(ctx context.Context, r request, out any) (status int, err error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return resp.StatusCode, decode(resp, out)
}

// send sends a request. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, "http://chatd"+r.path, r.body)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	req.Header = r.head
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return resp, nil
}

// encode writes a request. encoding/json would send U+FFFD for bytes that are no UTF-8; those go by
// standard input or as a file.
func encode(in any) ([]byte, error) {
	b, err := json.Marshal(in)
	if err == nil && bytes.Contains(bytes.ReplaceAll(b, []byte(`\\`), nil), []byte(`\ufffd`)) {
		err = chat.Invalid("a text of it is no UTF-8: send bytes by standard input")
	}
	return b, err
}

// sendFor makes the call of a verb for an answer of media type accept only. The caller closes its
// body.
func (c *Client) sendFor(
	ctx context.Context, verb string, id chat.ID, name string, args any, accept string,
) (*http.Response, error) {
	r, err := requestOf(verb, id, name, args)
	if err != nil {
		return nil, err
	}
	r.head.Set("Accept", accept)
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == accept {
		return resp, nil
	}
	err = decode(resp, nil)
	if err == nil {
		err = fmt.Errorf("cannot read chatd's answer: it is no %s", accept)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

func (c *Client) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot reach chatd at %s: %w: %w", c.socket, err, chat.ErrDenied)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot reach chatd at %s: %w; is chatd running there? %w", c.socket, err,
			chat.ErrBusy)
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
		if err != nil || t != ProblemType || json.Unmarshal(b, p) != nil || p.Kind == "" {
			return fmt.Errorf("cannot read chatd's answer: status %d without a problem: %s", resp.StatusCode,
				chat.Quote(string(b)))
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
