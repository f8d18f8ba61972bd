package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// ReadFile is POST …/files/read_file, or GET …/files/content for a that streams.
func (c *Client) ReadFile(ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin) (files.Answer, error) {
	if err := a.Validate(); err != nil {
		return files.Answer{}, err
	}
	if a.Stream {
		return c.download(ctx, id, a, begin)
	}
	return c.tool(ctx, id, files.ReadFileTool, a, begin)
}

// ListDir is POST …/files/list_dir.
func (c *Client) ListDir(ctx context.Context, id chat.ID, a files.ListDir, begin files.Begin) (files.Answer, error) {
	return c.tool(ctx, id, files.ListDirTool, a, begin)
}

// EditFile is POST …/files/edit_file.
func (c *Client) EditFile(ctx context.Context, id chat.ID, a files.EditFile) (files.Answer, error) {
	return c.tool(ctx, id, files.EditFileTool, a, nil)
}

// WriteFile is POST …/files/write_file, or PUT …/files/content for a that streams.
func (c *Client) WriteFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, false)
	}
	return c.tool(ctx, id, files.WriteFileTool, a, nil)
}

// AppendFile is POST …/files/append_file, or PUT …/files/content?append=true for a
// that streams.
func (c *Client) AppendFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, true)
	}
	return c.tool(ctx, id, files.AppendFileTool, a, nil)
}

// Explain is POST …/explain.
func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (out chat.Explained, err error) {
	err = c.doID(ctx, "POST", id, "/explain", q, &out)
	return out, err
}

// Share is POST …/share.
func (c *Client) Share(ctx context.Context, id chat.ID, s chat.Share) (out chat.Shared, err error) {
	err = c.doID(ctx, "POST", id, "/share", s, &out)
	return out, err
}

// tool is a call whose content, if any, is in the JSON.
func (c *Client) tool(ctx context.Context, id chat.ID, tool files.Tool, a interface{ Validate() error }, begin files.Begin) (files.Answer, error) {
	if err := a.Validate(); err != nil {
		return files.Answer{}, err
	}
	var got FileAnswer
	if err := c.doID(ctx, "POST", id, "/files/"+string(tool), a, &got); err != nil {
		return files.Answer{}, err
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

// contentPath is files/content of a chat with a query; what is 0 or false goes without saying.
func contentPath(id chat.ID, path string, query map[string]string) (string, error) {
	if _, err := chat.ParseID(string(id)); err != nil {
		return "", err
	}
	q := url.Values{"path": {path}}
	for k, v := range query {
		if v != "0" && v != "false" {
			q.Set(k, v)
		}
	}
	return "/v1/chats/" + string(id) + "/files/content?" + q.Encode(), nil
}

func (c *Client) download(ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin) (out files.Answer, err error) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	at, err := contentPath(id, a.Path, map[string]string{"offset": number(a.Offset), "length": number(a.Length),
		"line": number(a.Line), "lines": number(a.Lines), "hash": strconv.FormatBool(a.Hash)})
	if err != nil {
		return out, err
	}
	resp, err := c.send(ctx, "GET", at, "", nil)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return out, decode(resp, nil)
	}
	first := files.Answer{Offset: a.Offset}
	if first.Size, err = strconv.ParseInt(resp.Header.Get(sizeHeader), 10, 64); err != nil {
		return out, fmt.Errorf("cannot read chatd's answer: no %s: %w", sizeHeader, err)
	}
	n, err := io.Copy(begin(first), resp.Body)
	if err != nil {
		return out, fmt.Errorf("cannot read the content: %w", err)
	}
	var last FileAnswer
	if err := json.Unmarshal([]byte(resp.Trailer.Get(answerTrailer)), &last); err != nil {
		return out, fmt.Errorf("cannot read chatd's answer: no %s: %w", answerTrailer, err)
	}
	if last.Bytes != n {
		return out, fmt.Errorf("cannot use chatd's answer: %d bytes announced, %d came", last.Bytes, n)
	}
	return last.answer(), nil
}

func (c *Client) upload(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader, add bool) (out files.Answer, err error) {
	if err := a.Validate(); err != nil {
		return out, err
	}
	at, err := contentPath(id, a.Path, map[string]string{"append": strconv.FormatBool(add), "hash": strconv.FormatBool(a.Hash)})
	if err != nil {
		return out, err
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	head := map[string]string{"Content-Type": byteType, "Expect": "100-continue"} // a refusal comes before the content goes
	// The body belongs to the caller: the transport would close it.
	resp, err := c.sendBody(ctx, "PUT", at, head, io.NopCloser(body))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	var got FileAnswer
	if err := decode(resp, &got); err != nil {
		return out, err
	}
	return got.answer(), nil
}
