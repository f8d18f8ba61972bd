package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// ReadFile is POST …/files/read_file, or GET …/files/content for a that streams.
func (c *Client) ReadFile(
	ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	if a.Stream {
		return c.download(ctx, id, a, begin)
	}
	return c.tool(ctx, "read_file", id, a, begin)
}

// ListDir is POST …/files/list_dir.
func (c *Client) ListDir(
	ctx context.Context, id chat.ID, a filewire.ListDir, begin filewire.Begin,
) (filewire.Answer, error) {
	return c.tool(ctx, "list_dir", id, a, begin)
}

// EditFile is POST …/files/edit_file.
func (c *Client) EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error) {
	return c.tool(ctx, "edit_file", id, a, nil)
}

// WriteFile is POST …/files/write_file, or PUT …/files/content for a that streams.
func (c *Client) WriteFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, false)
	}
	return c.tool(ctx, "write_file", id, a, nil)
}

// AppendFile is POST …/files/append_file, or PUT …/files/content?append=true for a
// that streams.
func (c *Client) AppendFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, true)
	}
	return c.tool(ctx, "append_file", id, a, nil)
}

// tool makes a call whose content, if any, is in the JSON.
func (c *Client) tool(
	ctx context.Context, verb string, id chat.ID, a interface{ Validate() error }, begin filewire.Begin,
) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	var got FileAnswer
	if err := c.call(ctx, verb, id, a, &got); err != nil {
		return filewire.Answer{}, err
	}
	out := got.answer()
	b, err := got.content()
	if err != nil || got.Content == nil || begin == nil {
		return out, err
	}
	if _, err := begin(out).Write(b); err != nil {
		return out, fmt.Errorf("cannot write the content: %w", err)
	}
	return out, nil
}

func (c *Client) download(
	ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
) (out filewire.Answer, err error) {
	a.Stream = false // the route says it
	r, err := requestOf("get_content", id, "", a)
	if err != nil {
		return out, err
	}
	resp, err := c.send(ctx, r)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return out, decode(resp, nil)
	}
	first := filewire.Answer{Offset: a.Offset}
	if first.Size, err = strconv.ParseInt(resp.Header.Get(SizeHeader), 10, 64); err != nil {
		return out, fmt.Errorf("cannot read chatd's answer: no %s: %w", SizeHeader, err)
	}
	n, err := io.Copy(begin(first), resp.Body)
	if err != nil {
		return out, fmt.Errorf("cannot read the content: %w", err)
	}
	var last FileAnswer
	if err := json.Unmarshal([]byte(resp.Trailer.Get(AnswerTrailer)), &last); err != nil {
		return out, fmt.Errorf("cannot read chatd's answer: no %s: %w", AnswerTrailer, err)
	}
	if last.Bytes != n {
		return out, fmt.Errorf("cannot use chatd's answer: %d bytes announced, %d came", last.Bytes, n)
	}
	return last.answer(), nil
}

func (c *Client) upload(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader, add bool,
) (out filewire.Answer, err error) {
	if err := a.Validate(); err != nil {
		return out, err
	}
	r, err := requestOf("put_content", id, "", struct {
		Path   string `json:"path"`
		Append bool   `json:"append,omitempty"`
		Hash   bool   `json:"hash,omitempty"`
	}{a.Path, add, a.Hash})
	if err != nil {
		return out, err
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	r.head.Set("Content-Type", ByteType)
	r.head.Set("Expect", "100-continue") // refused before the content is sent
	r.body = io.NopCloser(body)          // it belongs to the caller: the transport would close it
	var got FileAnswer
	if _, err := c.do(ctx, r, &got); err != nil {
		return out, err
	}
	return got.answer(), nil
}
