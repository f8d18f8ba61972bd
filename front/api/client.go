package api

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
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/broker"
)

// Chats is the operations on chats. The server calls one, and [Client] implements it.
type Chats = broker.Chats

var _ Chats = (*Client)(nil)

// maxAnswer bounds what the client reads of one answer: two streams of a run, of
// [chat.MaxOutputMax] each, may take six times that in JSON, a page of chats less.
const maxAnswer = 64 << 20

// ClientOptions says where the daemon is.
type ClientOptions struct {
	// Socket is the path of the daemon's unix socket.
	Socket string
}

// Client asks a daemon. It satisfies [Chats]; the daemon takes the caller from the socket and
// ignores the one in the context. Its errors are [*Problem] where the daemon answered, so that
// errors.Is finds the errors of package chat. A socket that is absent or refuses is [chat.ErrBusy],
// because a daemon that restarts answers later, and wraps the cause (fs.ErrNotExist, ECONNREFUSED).
// It may be used by many goroutines.
type Client struct {
	broker.Calls
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
			Transport:     &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ExpectContinueTimeout: 5 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.Calls = c.call
	return c
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is broker.Calls: arguments go where the row has a place for them.
func (c *Client) call(ctx context.Context, verb string, id chat.ID, args, answer any) (err error) {
	i := slices.IndexFunc(routes, func(r route) bool { return r.name == verb })
	r, t := routes[i], target{chat: id}
	switch name, ok := nameOf(args); {
	case ok && r.body == nothing:
		t.name, args = name, nil
	case r.body == nothing:
		t.query, err = queryOf(args)
		args = nil
	}
	if err == nil {
		_, err = c.do(ctx, r, t, args, answer)
	}
	return err
}

// nameOf is the name of an object in a path, if args are one.
func nameOf(args any) (string, bool) {
	v := reflect.ValueOf(args)
	return v.String(), v.Kind() == reflect.String
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

// askFor asks for an answer in JSON.
func askFor[R any](ctx context.Context, c *Client, r route, t target, in any) (out R, err error) {
	_, err = c.do(ctx, r, t, in, &out)
	return out, err
}

// do sends in as JSON, if there is any, and reads the answer into out.
func (c *Client) do(ctx context.Context, r route, t target, in, out any) (status int, err error) {
	resp, err := c.send(ctx, r, t, "", in)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return resp.StatusCode, decode(resp, out)
}

// send sends in as JSON, if there is any; accept is the wanted media type, if it is not the usual
// one. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, r route, t target, accept string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := encode(in)
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
	return c.sendBody(ctx, r, t, head, body)
}

// encode writes a request. encoding/json would send U+FFFD for bytes that are no UTF-8; those go by
// standard input or as a file.
func encode(in any) ([]byte, error) {
	b, err := json.Marshal(in)
	if err == nil && bytes.Contains(bytes.ReplaceAll(b, []byte(`\\`), nil), []byte(`\ufffd`)) {
		err = fmt.Errorf("a text of it is no UTF-8: send bytes by standard input: %w", chat.ErrInvalid)
	}
	return b, err
}

// sendFor is send for an answer of media type accept only. The caller closes its body.
func (c *Client) sendFor(ctx context.Context, r route, t target, accept string, in any) (*http.Response, error) {
	resp, err := c.send(ctx, r, t, accept, in)
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

// sendBody sends body as it is. The caller closes the answer's body.
func (c *Client) sendBody(
	ctx context.Context, r route, t target, head map[string]string, body io.Reader,
) (*http.Response, error) {
	path, err := r.at(t)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, "http://chatd"+path, body)
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
