package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// eventually waits for cond without a bound that a slow machine could miss.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(generous); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func countFDs(t *testing.T) int {
	t.Helper()
	ents, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc: to count file descriptors")
	}
	return len(ents)
}

func dial(t *testing.T, socket string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("unix", socket))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(generous))
	return c
}

func TestSlowClientsAreCutOff(t *testing.T) {
	heads, _ := start(t, ServerOptions{HeaderTimeout: 50 * time.Millisecond, IdleTimeout: 50 * time.Millisecond})
	bodies, _ := start(t, ServerOptions{HeaderTimeout: generous, BodyTimeout: 50 * time.Millisecond}) // the head may come late
	for name, sent := range map[string]string{
		"nothing":        "",
		"half a line":    "GET /heal",
		"no end":         "GET /healthz HTTP/1.1\r\nHost: x\r\n",
		"half a body":    "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		"half a chunk":   "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
		"then no second": get("/healthz"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, body := heads, strings.Contains(sent, "\r\n\r\n") && sent != get("/healthz")
			if body {
				socket = bodies
			}
			c := dial(t, socket)
			if _, err := io.WriteString(c, sent); err != nil && body {
				t.Fatal(err) // a late head is cut off before it is sent
			}
			answer, err := io.ReadAll(c) // returns when the server closes
			must.True(t, !errors.Is(err, os.ErrDeadlineExceeded), "the connection stays open: %v", err)
			expect.True(t, !body || bytes.Contains(answer, []byte(`"status":408`)),
				"want a 408 problem, got %q", answer)
		})
	}
}

// A read deadline that stays set would cancel the context of a long run, because net/http reads on
// to see the client go.
func TestLongWorkOutlivesTheBodyTimeout(t *testing.T) {
	const short = 250 * time.Millisecond
	socket, mem := start(t, ServerOptions{BodyTimeout: short, WriteTimeout: generous})
	long := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cancelled: %w", ctx.Err())
		case <-time.After(4 * short):
			return nil
		}
	}
	mem.OnRun = func(ctx context.Context, _ chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{Stdout: "done"}, long(ctx)
	}
	mem.OnWake = long
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	res, err := c.Run(t.Context(), made.ID, chat.RunSpec{Command: "sleep"})
	expect.True(t, err == nil && res.Stdout == "done", "run, which has a body: got %+v, %v", res, err)
	if _, err := c.Wake(t.Context(), made.ID); err != nil {
		t.Errorf("wake, which has none: %v", err)
	}
}

func TestRunIsCancelledWhenTheClientGoes(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	began, ended := make(chan struct{}), make(chan error, 1)
	mem.OnRun = func(ctx context.Context, _ chat.RunSpec) (chat.RunResult, error) {
		close(began)
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(generous):
			ended <- errors.New("the run went on")
		}
		return chat.RunResult{}, ctx.Err()
	}
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-began:
		case <-time.After(generous):
		}
		cancel()
	}()
	if _, err := c.Run(ctx, made.ID, chat.RunSpec{Command: "sleep"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case err := <-ended:
		expect.NoError(t, err)
	case <-time.After(generous):
		t.Error("the run never began")
	}
}

// TestCreateWhoseClientLeaves: an error of a create whose client went away is never an internal
// error.
func TestCreateWhoseClientLeaves(t *testing.T) {
	var log syncBuffer
	socket, mem := start(t, ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	began := make(chan struct{})
	mem.OnCreate = func(ctx context.Context, _ chat.Spec) error {
		close(began)
		<-ctx.Done()
		return errors.New("cannot find passwd: signal: killed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	_, _, err := clientAt(t, socket).Create(ctx, chat.Spec{ExternalID: "a"})
	expect.True(t, errors.Is(err, context.Canceled), "got %v", err)
	eventually(t, "a line in the log", func() bool { return strings.Contains(log.String(), "signal: killed") })
	if text := log.String(); strings.Contains(text, "internal error") || !strings.Contains(text, "the client went away") {
		t.Errorf("the log says %s", text)
	}
}

func TestTooManyRequestsAreBusy(t *testing.T) {
	socket, mem := start(t, ServerOptions{MaxRequests: 1})
	began, finish := make(chan struct{}), make(chan struct{})
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		close(began)
		<-finish
		return chat.RunResult{}, nil
	}
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		expect.NoError(t, expect.Err(c.Run(t.Context(), made.ID, chat.RunSpec{Command: "x"})))
	})
	select {
	case <-began:
	case <-time.After(generous):
		t.Fatal("the run never began")
	}
	g := raw(t, socket, get("/v1/host"))
	expect.True(t, g.status == 503 && g.problem.Kind == "busy" && g.header.Get("Retry-After") != "",
		"got %d %v %s", g.status, g.header, g.body)
	close(finish)
	wg.Wait()
	if g := raw(t, socket, get("/v1/host")); g.status != 200 {
		t.Errorf("the place is not given back: %d %s", g.status, g.body)
	}
}

func TestConnectionsOfOneUIDAreBounded(t *testing.T) {
	socket, _ := start(t, ServerOptions{MaxConns: 2})
	keep := []net.Conn{dial(t, socket), dial(t, socket)}
	for _, c := range keep {
		must.Do(t, expect.Err(io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n")))
	}
	if b, err := io.ReadAll(dial(t, socket)); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third stays: %q, %v", b, err)
	}
	_ = keep[0].Close()
	eventually(t, "the place is given back", func() bool {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		defer c.Close()
		_, _ = io.WriteString(c, get("/healthz"))
		b := make([]byte, 12)
		_, err = io.ReadFull(c, b)
		return err == nil && string(b) == "HTTP/1.1 200"
	})
}

func TestNothingLeaksADescriptor(t *testing.T) {
	// The clients that are cut off send nothing, so that no request needs to be quick.
	socket, _ := start(t, ServerOptions{HeaderTimeout: 3 * time.Second, IdleTimeout: 50 * time.Millisecond})
	before := countFDs(t)
	for range 20 {
		for _, text := range []string{get("/healthz"), post("/v1/chats", `{"external_id":"a"}`), post("/v1/chats", `{`), "x\r\n\r\n",
			post("/v1/chats", strings.Repeat(" ", 3<<20)), get("/v1/%00")} {
			raw(t, socket, text)
		}
		halfClosed(t, socket)
		c := dial(t, socket) // goes away in the middle
		_, _ = io.WriteString(c, "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
		_ = c.Close()
		_ = dial(t, socket) // stays, and is cut off
	}
	// The test's own ends of the 20 last ones stay open until it ends.
	eventually(t, "as many descriptors as before", func() bool { return countFDs(t) <= before+20 })
}

// halfClosed sends a request and then ends its side; the answer, if any, comes whole.
func halfClosed(t *testing.T, socket string) {
	t.Helper()
	c := dial(t, socket).(*net.UnixConn)
	must.Do(t, expect.Err(io.WriteString(c, get("/healthz"))))
	must.Do(t, c.CloseWrite())
	b, err := io.ReadAll(c)
	if err != nil || len(b) > 0 && !bytes.HasSuffix(b, []byte("}\n")) {
		t.Errorf("got %q, %v", b, err)
	}
	_ = c.Close()
}

func TestPanicAndInternalError(t *testing.T) {
	var log syncBuffer
	socket, mem := start(t, ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	mem.OnCreate = func(_ context.Context, s chat.Spec) error {
		if s.ExternalID == "panic" {
			panic("boom")
		}
		return errors.New("cannot open /var/lib/chatd/secret")
	}
	for _, ext := range []string{"panic", "internal"} {
		g := raw(t, socket, post("/v1/chats", `{"external_id":"`+ext+`"}`))
		if g.status != http.StatusInternalServerError || g.problem.Kind != "internal" || g.problem.Ref == "" {
			t.Errorf("%s: got %d %s", ext, g.status, g.body)
		}
		expect.True(t, strings.Contains(log.String(), g.problem.Ref),
			"%s: ref %s is not in the log", ext, g.problem.Ref)
	}
	expect.True(t, raw(t, socket, get("/healthz")).status == 200, "not served after a panic")
}

// syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
