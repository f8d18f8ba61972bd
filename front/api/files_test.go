package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// withChat is a server with one chat that is asleep.
func withChat(t *testing.T, opt ServerOptions) (socket string, mem *apitest.Memory, c *client.Client, id chat.ID) {
	t.Helper()
	opt.NameOf = func(uint32) (string, error) { return "root", nil }
	socket, mem = start(t, opt)
	c = clientAt(t, socket)
	no := false
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a", Awake: &no}))(t)
	return socket, mem, c, made.ID
}

// to is a Begin that collects the content in b.
func to(b *bytes.Buffer) filewire.Begin {
	return func(filewire.Answer) io.Writer { b.Reset(); return b }
}

func text(s string) *string { return &s }

// TestFilesOverTheWire: each tool, in JSON and as a stream, with any bytes.
func TestFilesOverTheWire(t *testing.T) {
	_, mem, c, id := withChat(t, ServerOptions{})
	ctx := t.Context()
	var got bytes.Buffer
	a, err := c.WriteFile(ctx, id, filewire.WriteFile{Path: "d/f", Content: text("one\n")}, nil)
	expect.True(t, err == nil && a.Created && a.Message == "File written: d/f" && a.Size == 4,
		"write: %+v, %v", a, err)
	if a, err = c.AppendFile(ctx, id, filewire.WriteFile{Path: "d/f", Content: text("two\n")}, nil); err != nil || a.Created || a.Size != 8 {
		t.Errorf("append: %+v, %v", a, err)
	}
	if a, err = c.EditFile(ctx, id, filewire.EditFile{Path: "d/f", OldText: "two", NewText: "2\u2028<&>"}); err != nil || !strings.Contains(a.Diff, "+2\u2028<&>") {
		t.Errorf("edit: %+v, %v", a, err)
	}
	if a, err = c.ReadFile(ctx, id, filewire.ReadFile{Path: "d/f", Offset: 4, Length: 1}, to(&got)); err != nil || got.String() != "2" || !a.Truncated || a.NextOffset != 5 {
		t.Errorf("read: %+v, %q, %v", a, got.String(), err)
	}
	if _, err = c.ListDir(ctx, id, filewire.ListDir{}, to(&got)); err != nil || got.String() != "DIR:  d\n" {
		t.Errorf("list: %q, %v", got.String(), err)
	}
	bytesOf := []string{"", "\x00\xff\xfe\x1b[31m\r\n", strings.Repeat("\x80abc\n", 300_000)}
	for _, name := range []string{"0", "false", "a b&c=d+e%20#?ü🦀\n", "/srv/x"} {
		for _, want := range bytesOf {
			sum := sha256.Sum256([]byte(want))
			a, err := c.WriteFile(ctx, id, filewire.WriteFile{Path: name, Stream: true, Hash: true}, strings.NewReader(want))
			if err != nil || a.Bytes != int64(len(want)) || a.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("put %q: %+v, %v", name, a, err)
			}
			if a, err = c.ReadFile(ctx, id, filewire.ReadFile{Path: name, Stream: true, Hash: true}, to(&got)); err != nil || got.String() != want || a.SHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("get %q: %+v, %d bytes, %v", name, a, got.Len(), err)
			}
			if len(want) > 1 && len(want) < 100 {
				if _, err = c.ReadFile(ctx, id, filewire.ReadFile{Path: name}, to(&got)); err != nil || got.String() != want {
					t.Errorf("read %q: %q, %v", name, got.String(), err)
				}
				if _, err = c.ReadFile(ctx, id, filewire.ReadFile{Path: name, Stream: true, Offset: 1, Length: 2}, to(&got)); err != nil || got.String() != want[1:3] {
					t.Errorf("get a part of %q: %q, %v", name, got.String(), err)
				}
			}
		}
	}
	if a, err = c.AppendFile(ctx, id, filewire.WriteFile{Path: "0", Stream: true}, strings.NewReader("end")); err != nil || a.Size != int64(len(bytesOf[2])+3) {
		t.Errorf("append a stream: %+v, %v", a, err)
	}
	if _, err := c.ReadFile(ctx, id, filewire.ReadFile{Path: "nothing", Stream: true}, to(&got)); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}
	if made, err := mem.Get(chat.WithCaller(ctx, chat.Caller{Role: chat.RoleOperator}), id); err != nil || made.Awake {
		t.Errorf("the chat was woken: %+v, %v", made, err)
	}
}

// TestDenialsOverTheWire: a denial is 403 with the rule, its place and the policy's words.
func TestDenialsOverTheWire(t *testing.T) {
	socket, mem, c, id := withChat(t, ServerOptions{})
	mem.Deny = func(op filewire.Op, name string) *filewire.Denial {
		if !strings.HasSuffix(name, "/.env") {
			return nil
		}
		return &filewire.Denial{Op: op, Path: name, Rule: "deny **/.env", Place: "rules.yaml:3", Layer: "global rules", Message: "Access denied by policy"}
	}
	ctx := t.Context()
	begin := to(&bytes.Buffer{})
	for name, call := range map[string]func() error{
		"read": func() error { return second(c.ReadFile(ctx, id, filewire.ReadFile{Path: ".env"}, begin)) },
		"get":  func() error { return second(c.ReadFile(ctx, id, filewire.ReadFile{Path: ".env", Stream: true}, begin)) },
		"list": func() error { return second(c.ListDir(ctx, id, filewire.ListDir{Path: ".env"}, begin)) },
		"write": func() error {
			return second(c.WriteFile(ctx, id, filewire.WriteFile{Path: ".env", Content: text("x")}, nil))
		},
		"append": func() error {
			return second(c.AppendFile(ctx, id, filewire.WriteFile{Path: ".env", Content: text("x")}, nil))
		},
		"edit": func() error {
			return second(c.EditFile(ctx, id, filewire.EditFile{Path: ".env", OldText: "x", NewText: "y"}))
		},
		"share": func() error { return second(c.Share(ctx, id, chat.Share{Path: ".env", To: id})) },
	} {
		var p *client.Problem
		err := call()
		if !errors.As(err, &p) || !errors.Is(err, chat.ErrDenied) || p.Status != 403 || p.Rule != "deny **/.env" || p.Place != "rules.yaml:3" ||
			p.Layer != "global rules" || p.Op == "" || !strings.HasSuffix(p.Path, "/.env") || p.Detail != "Access denied by policy" {
			t.Errorf("%s: %#v", name, err)
		}
	}
	body := &countingBody{}
	_, err := c.WriteFile(ctx, id, filewire.WriteFile{Path: ".env", Stream: true}, body)
	if !errors.Is(err, chat.ErrDenied) || body.n.Load() > 0 {
		t.Errorf("put: %v, after %d bytes", err, body.n.Load())
	}
	if e, err := c.Explain(ctx, id, chat.Question{Path: ".env", Op: "read"}); err != nil || e.Verdict != "deny" || e.Place != "rules.yaml:3" {
		t.Errorf("explain: %+v, %v", e, err)
	}
	mem.Egress = []chat.Allow{{Host: "a.example", Low: 443, High: 443}}
	for port, want := range map[uint16]string{443: "allow", 80: "deny"} {
		e, err := c.Explain(ctx, id, chat.Question{Host: "A.example", Port: port})
		listed := e.Rule != "" && e.Why != ""
		if err != nil || e.Verdict != want || e.Layer != "egress" || listed != (want == "allow") {
			t.Errorf("explain a destination: %+v, %v", e, err)
		}
	}
	if e, err := c.Explain(ctx, id, chat.Question{Command: "cat x"}); err != nil || e.Verdict != "allow" || len(e.Paths) != 1 {
		t.Errorf("explain a command: %+v, %v", e, err)
	}
	if g := raw(t, socket, get("/v1/chats/"+string(id)+"/files/content?path=.env")); g.status != 403 || g.problem.Rule != "deny **/.env" || g.header.Get("Content-Type") != client.ProblemType {
		t.Errorf("as it comes: %d %v %s", g.status, g.header, g.body)
	}
}

func second[T any](_ T, err error) error { return err }

// countingBody is an endless body that counts the bytes read from it.
type countingBody struct{ n atomic.Int64 }

func (c *countingBody) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestFileMax: content over the file limit is 413, announced or not, and the daemon reads little
// beyond the limit.
func TestFileMax(t *testing.T) {
	const limit = 1 << 20
	socket, _, c, id := withChat(t, ServerOptions{MaxFile: limit})
	at := "/v1/chats/" + string(id) + "/files/content?path=f"
	if g := raw(t, socket, put(at, strings.Repeat("x", limit+1))); g.status != 413 || !strings.Contains(g.problem.Detail, "file_max") {
		t.Errorf("announced: %d %s", g.status, g.body)
	}
	chunks := strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 17)
	if g := raw(t, socket, "PUT "+at+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks+"0\r\n\r\n"); g.status != 413 {
		t.Errorf("in chunks: %d %s", g.status, g.body)
	}
	if _, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Stream: true}, io.LimitReader(&countingBody{}, limit)); err != nil {
		t.Errorf("as much as it may have: %v", err)
	}
	if _, err := c.ReadFile(t.Context(), id, filewire.ReadFile{Path: "g"}, to(&bytes.Buffer{})); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("something was made of what is too large: %v", err)
	}
}

// TestStreamsCostNoMemory: 1 GiB in each direction through server and client, both in
// this process.
func TestStreamsCostNoMemory(t *testing.T) {
	const size = 1 << 30
	_, mem, c, id := withChat(t, ServerOptions{})
	piece := make([]byte, 128<<10)
	mem.OnFile(func(_ context.Context, tool filewire.Tool, begin filewire.Begin, body io.Reader) (filewire.Answer, error) {
		if tool != filewire.ReadFileTool {
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{body}, piece)
			return filewire.Answer{Bytes: n}, err
		}
		w := begin(filewire.Answer{Size: size})
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return filewire.Answer{}, err
			}
		}
		return filewire.Answer{Bytes: size}, nil
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if a, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Stream: true}, io.LimitReader(&countingBody{}, size)); err != nil || a.Bytes != size {
		t.Errorf("put: %+v, %v", a, err)
	}
	if a, err := c.ReadFile(t.Context(), id, filewire.ReadFile{Path: "f", Stream: true}, func(filewire.Answer) io.Writer { return io.Discard }); err != nil || a.Bytes != size {
		t.Errorf("get: %+v, %v", a, err)
	}
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	expect.True(t, used <= 8<<20, "%d KiB were allocated for 2 GiB", used>>10)
}

// TestBrokenStreams: a stream that is cut off is an error at the other end, and neither end waits
// forever.
func TestBrokenStreams(t *testing.T) {
	socket, mem, c, id := withChat(t, ServerOptions{BodyTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond})
	at := "/v1/chats/" + string(id) + "/files/content?path=f"
	ended := make(chan error, 1)
	mem.OnFile(func(ctx context.Context, tool filewire.Tool, begin filewire.Begin, body io.Reader) (filewire.Answer, error) {
		var err error
		if tool == filewire.ReadFileTool {
			_, err = io.Copy(begin(filewire.Answer{}), struct{ io.Reader }{&countingBody{}})
		} else {
			_, err = io.Copy(io.Discard, body)
		}
		ended <- err
		return filewire.Answer{}, err
	})
	wait := func(what string) {
		t.Helper()
		select {
		case err := <-ended:
			expect.True(t, err != nil, "%s: it ended well", what)
		case <-time.After(generous):
			t.Fatalf("%s: it never ended", what)
		}
	}
	conn := dial(t, socket)
	_, _ = io.WriteString(conn, "PUT "+at+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	_ = conn.Close()
	wait("a writer that goes away")
	g := raw(t, socket, "PUT "+at+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	expect.True(t, g.status == 408, "a slow writer: %d %s", g.status, g.body)
	wait("a slow writer")
	conn = dial(t, socket)
	_, _ = io.WriteString(conn, get(at))
	wait("a reader that reads nothing")
	conn = dial(t, socket)
	_, _ = io.WriteString(conn, get(at))
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.Close()
	wait("a reader that goes away")
	mem.OnFile(func(_ context.Context, _ filewire.Tool, begin filewire.Begin, _ io.Reader) (filewire.Answer, error) {
		_, _ = begin(filewire.Answer{Size: 9}).Write([]byte("half"))
		return filewire.Answer{}, fmt.Errorf("the tool ended: %w", chat.ErrBusy)
	})
	if _, err := c.ReadFile(t.Context(), id, filewire.ReadFile{Path: "f", Stream: true}, to(&bytes.Buffer{})); err == nil {
		t.Error("half a file looks like a whole one")
	}
	mem.OnFile(func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error) {
		return filewire.Answer{}, fmt.Errorf("no body was wanted: %w", chat.ErrBusy)
	})
	body := &countingBody{}
	if _, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Stream: true}, body); !errors.Is(err, chat.ErrBusy) || body.n.Load() > 0 {
		t.Errorf("refused: %v, after %d bytes", err, body.n.Load())
	}
}

// TestStreamsAreBounded: a stream beyond MaxStreams is refused as busy; other requests are served.
func TestStreamsAreBounded(t *testing.T) {
	_, mem, c, id := withChat(t, ServerOptions{MaxStreams: 2})
	release, in := make(chan struct{}), make(chan struct{}, 2)
	mem.OnFile(func(_ context.Context, _ filewire.Tool, begin filewire.Begin, _ io.Reader) (filewire.Answer, error) {
		in <- struct{}{}
		<-release
		begin(filewire.Answer{})
		return filewire.Answer{}, nil
	})
	read := func() error {
		return second(c.ReadFile(t.Context(), id, filewire.ReadFile{Path: "f", Stream: true}, to(&bytes.Buffer{})))
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			expect.NoError(t, read())
		})
		<-in
	}
	var p *client.Problem
	if err := read(); !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable {
		t.Errorf("a third: %v", err)
	}
	if _, err := c.Get(t.Context(), id); err != nil {
		t.Errorf("another request meanwhile: %v", err)
	}
	close(release)
	both.Wait()
	mem.OnFile(nil)
	if _, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Stream: true}, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
