package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRunTo: pieces of any bytes arrive as they are printed, before the run ends.
func TestRunTo(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	heard := make(chan string)
	mem.OnRunTo = func(_ context.Context, spec chat.RunSpec, out chat.Output) (chat.RunResult, error) {
		switch spec.Command {
		case "refused":
			return chat.RunResult{}, fmt.Errorf("cannot x: %w", chat.ErrDenied)
		case "fails":
			out(chat.Stdout, []byte("x"))
			return chat.RunResult{}, fmt.Errorf("cannot x: %w", chat.ErrWrongPhase)
		}
		out(chat.Stdout, []byte("first"))
		got := <-heard
		expect.True(t, got == "first", "heard %q before the end", got)
		out(chat.Stderr, []byte{0xff, 0, '\n', '<'})
		return chat.RunResult{Exit: 7, StdoutBytes: 5, Stdout: "not sent twice"}, nil
	}
	var got bytes.Buffer
	res, err := c.RunTo(t.Context(), made.ID, chat.RunSpec{Command: "x"}, func(stream string, p []byte) {
		fmt.Fprintf(&got, "%s:%q ", stream, p)
		if stream == chat.Stdout {
			heard <- string(p)
		}
	})
	if err != nil || res.Exit != 7 || res.StdoutBytes != 5 || res.Stdout != "" || got.String() != `stdout:"first" stderr:"\xff\x00\n<" ` {
		t.Errorf("%+v, %v, %s", res, err, got.String())
	}
	if _, err := c.RunTo(t.Context(), made.ID, chat.RunSpec{Command: "refused"}, nil); !errors.Is(err, chat.ErrDenied) {
		t.Errorf("refused before the first piece: %v", err)
	}
	if _, err := c.RunTo(t.Context(), made.ID, chat.RunSpec{Command: "fails"}, func(string, []byte) {}); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("failed after the first piece: %v", err)
	}
	for _, spec := range []chat.RunSpec{{}, {Command: "x", Argv: []string{"y"}}, {Command: "x", Timeout: -1}} {
		_, err := c.RunTo(t.Context(), made.ID, spec, nil)
		expect.True(t, errors.Is(err, chat.ErrInvalid), "%+v: %v", spec, err)
	}
}

// TestRunToOfNoChat: a run in an unknown chat fails.
func TestRunToOfNoChat(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	c := clientAt(t, socket)
	_, err := c.RunTo(t.Context(), "0123456789abcdef", chat.RunSpec{Command: "x"}, nil)
	expect.True(t, errors.Is(err, chat.ErrNotFound), "a chat that is not there: %v", err)
}

// TestFramesSlowReader: a reader that takes nothing holds up a run for a bounded time, and dropped
// bytes are counted; a reader that goes away ends the run.
func TestFramesSlowReader(t *testing.T) {
	defer func(d time.Duration) { slowReader = d }(slowReader)
	slowReader = 50 * time.Millisecond
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	const pieces = 1000
	printed, gone := make(chan bool, 1), make(chan bool, 1)
	mem.OnRunTo = func(_ context.Context, _ chat.RunSpec, out chat.Output) (chat.RunResult, error) {
		for range pieces {
			out(chat.Stdout, bytes.Repeat([]byte("x"), 32<<10))
		}
		printed <- true
		return chat.RunResult{StdoutBytes: pieces * 32 << 10}, nil
	}
	conn := ask(t, socket, made.ID)
	<-printed // none of it has been read yet
	got, last := 0, chat.Frame{}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	must.True(t, err == nil && res.Header.Get("Content-Type") == client.FrameType, "%+v, %v", res, err)
	for dec := json.NewDecoder(res.Body); ; {
		var f chat.Frame
		if err := dec.Decode(&f); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got, last = got+len(f.Bytes()), f
	}
	if last.Result == nil || last.DroppedBytes == 0 || int64(got)+last.DroppedBytes != pieces*32<<10 {
		t.Errorf("got %d bytes, and %+v", got, last)
	}
	mem.OnRunTo = func(ctx context.Context, _ chat.RunSpec, out chat.Output) (chat.RunResult, error) {
		out(chat.Stdout, []byte("x"))
		<-ctx.Done()
		gone <- true
		return chat.RunResult{}, ctx.Err()
	}
	conn = ask(t, socket, made.ID)
	must.Do(t, expect.Err(http.ReadResponse(bufio.NewReader(conn), nil)))
	conn.Close()
	<-gone
}

// ask sends the request and reads nothing.
func ask(t *testing.T, socket string, id chat.ID) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial("unix", socket))(t)
	t.Cleanup(func() { conn.Close() })
	body := `{"command":"x"}`
	if _, err := fmt.Fprintf(conn, "POST /v1/chats/%s/runs HTTP/1.1\r\nHost: x\r\nAccept: text/html, %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", id, client.FrameType, len(body), body); err != nil {
		t.Fatal(err)
	}
	return conn
}
