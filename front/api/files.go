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
	"github.com/chatd/chatd/internal/filewire"
)

// The rows about files.
var (
	readFile   = route{"POST", "/v1/chats/{id}/files/read_file", bridges, jsonBody, "read_file", 200, "Read a page of a file, by bytes or by lines.", serve((*Server).readFile)}
	writeFile  = route{"POST", "/v1/chats/{id}/files/write_file", bridges, jsonBody, "write_file", 200, "Write a file, in one step (201 if it is new).", serve((*Server).writeFile)}
	editFile   = route{"POST", "/v1/chats/{id}/files/edit_file", bridges, jsonBody, "edit_file", 200, "Replace a text that is there exactly once.", serve((*Server).editFile)}
	appendFile = route{"POST", "/v1/chats/{id}/files/append_file", bridges, jsonBody, "append_file", 200, "Add to the end of a file (201 if it is new).", serve((*Server).appendFile)}
	listDir    = route{"POST", "/v1/chats/{id}/files/list_dir", bridges, jsonBody, "list_dir", 200, "List a directory.", serve((*Server).listDir)}
	getContent = route{"GET", "/v1/chats/{id}/files/content", bridges, nothing, "get_content", 200, "Read a file, or a part of it, as a stream of bytes.", serveGetContent}
	putContent = route{"PUT", "/v1/chats/{id}/files/content", bridges, rawBytes, "put_content", 200, "Write a file, or append to it, from a stream of bytes (201 if it is new).", servePutContent}
	share      = route{"POST", "/v1/chats/{id}/share", bridges, jsonBody, "share", 200, "Copy one regular file to another chat.", of(Chats.Share)}

	fileRoutes = []route{readFile, writeFile, editFile, appendFile, listDir, getContent, putContent, share}
)

type fileOutput struct {
	Status int
	Body   FileAnswer
}

// readFile answers a page; files/content answers the whole file as bytes.
func (s *Server) readFile(ctx context.Context, in *chatBody[filewire.ReadFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("GET")
	}
	var b bytes.Buffer
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.ReadFile(ctx, id, in.Body, func(filewire.Answer) io.Writer { return &b })
	}, &b)
}

func (s *Server) listDir(ctx context.Context, in *chatBody[filewire.ListDir]) (*fileOutput, error) {
	var b bytes.Buffer
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.ListDir(ctx, id, in.Body, func(filewire.Answer) io.Writer { return &b })
	}, &b)
}

func (s *Server) writeFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) { return s.opt.Chats.WriteFile(ctx, id, in.Body, nil) }, nil)
}

func (s *Server) appendFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) { return s.opt.Chats.AppendFile(ctx, id, in.Body, nil) }, nil)
}

func (s *Server) editFile(ctx context.Context, in *chatBody[filewire.EditFile]) (*fileOutput, error) {
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) { return s.opt.Chats.EditFile(ctx, id, in.Body) }, nil)
}

func noStream(method string) *Problem {
	return invalid(http.StatusBadRequest, "stream", "cannot stream in JSON: want %s of files/content", method)
}

// fileTool calls a tool whose arguments and answer are JSON.
func fileTool[T any](in *chatBody[T], do func(chat.ID) (filewire.Answer, error), content *bytes.Buffer) (*fileOutput, error) {
	id, err := in.chat()
	if err != nil {
		return nil, err
	}
	a, err := do(id)
	if err != nil {
		return nil, err
	}
	out := &fileOutput{Status: statusOf(a), Body: fileAnswer(a)}
	if content != nil {
		out.Body = out.Body.withContent(content.Bytes())
	}
	return out, nil
}

func statusOf(a filewire.Answer) int {
	if a.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

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
	return c.tool(ctx, readFile, id, a, begin)
}

// ListDir is POST …/files/list_dir.
func (c *Client) ListDir(
	ctx context.Context, id chat.ID, a filewire.ListDir, begin filewire.Begin,
) (filewire.Answer, error) {
	return c.tool(ctx, listDir, id, a, begin)
}

// EditFile is POST …/files/edit_file.
func (c *Client) EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error) {
	return c.tool(ctx, editFile, id, a, nil)
}

// WriteFile is POST …/files/write_file, or PUT …/files/content for a that streams.
func (c *Client) WriteFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, false)
	}
	return c.tool(ctx, writeFile, id, a, nil)
}

// AppendFile is POST …/files/append_file, or PUT …/files/content?append=true for a
// that streams.
func (c *Client) AppendFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	if a.Stream {
		return c.upload(ctx, id, a, body, true)
	}
	return c.tool(ctx, appendFile, id, a, nil)
}

// tool makes a call whose content, if any, is in the JSON.
func (c *Client) tool(ctx context.Context, r route, id chat.ID, a interface{ Validate() error }, begin filewire.Begin) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	got, err := askFor[FileAnswer](ctx, c, r, target{chat: id}, a)
	if err != nil {
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

// contentAt is files/content of a chat with a query; values of 0 or false are left out.
func contentAt(id chat.ID, path string, query map[string]string) target {
	q := url.Values{"path": {path}}
	for k, v := range query {
		if v != "0" && v != "false" {
			q.Set(k, v)
		}
	}
	return target{chat: id, query: "?" + q.Encode()}
}

func (c *Client) download(
	ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
) (out filewire.Answer, err error) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	at := contentAt(id, a.Path, map[string]string{"offset": number(a.Offset), "length": number(a.Length),
		"line": number(a.Line), "lines": number(a.Lines), "hash": strconv.FormatBool(a.Hash)})
	resp, err := c.send(ctx, getContent, at, "", nil)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return out, decode(resp, nil)
	}
	first := filewire.Answer{Offset: a.Offset}
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

func (c *Client) upload(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader, add bool,
) (out filewire.Answer, err error) {
	if err := a.Validate(); err != nil {
		return out, err
	}
	at := contentAt(id, a.Path, map[string]string{"append": strconv.FormatBool(add), "hash": strconv.FormatBool(a.Hash)})
	if body == nil {
		body = bytes.NewReader(nil)
	}
	head := map[string]string{"Content-Type": byteType, "Expect": "100-continue"} // refused before the content is sent
	// The body belongs to the caller: the transport would close it.
	resp, err := c.sendBody(ctx, putContent, at, head, io.NopCloser(body))
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

// Share is POST …/share.
func (c *Client) Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error) {
	return askFor[chat.Shared](ctx, c, share, target{chat: id}, s)
}
