package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/provision/listen"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// generous is longer than anything here takes on a slow machine.
const generous = 2 * time.Minute

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
	t.Skip("needs root: peers of other uids")
}

// through is the front of a [verbs.Root], as it runs.
var through func(t *testing.T, root any, nameOf func(uint32) (string, error)) verbs.Chats

// start serves a Memory on a socket of its own. The test's own uid is an operator.
func start(t *testing.T, opt ServerOptions) (socket string, mem *apitest.Memory) {
	t.Helper()
	mem = apitest.New()
	return startOn(t, opt, mem), mem
}

// startOn serves a [verbs.Root].
func startOn(t *testing.T, opt ServerOptions, root any) (socket string) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "chatd-api-"))(t)
	t.Cleanup(func() {
		expect.NoError(t, os.RemoveAll(dir))
	})
	must.Do(t, os.Chmod(dir, 0o755))
	opt.Chats = through(t, root, opt.NameOf)
	opt.Operators = append(opt.Operators, uint32(os.Getgid()))
	socket = filepath.Join(dir, "s")
	l := must.Get(listen.Unix(socket, append([]uint32{uint32(os.Getgid())}, opt.Bridges...)...))(t)
	s := NewServer(opt)
	s.http.Handler = held(t, s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		expect.NoError(t, s.Shutdown(ctx))
		expect.NoError(t, <-done)
	})
	return socket
}

func clientAt(t *testing.T, socket string) *client.Client {
	c := client.NewClient(client.ClientOptions{Socket: socket})
	t.Cleanup(c.Close)
	return c
}

// got is a raw answer.
type got struct {
	status  int
	header  http.Header
	problem client.Problem
	body    string
}

// raw sends text as it is and reads one answer.
func raw(t *testing.T, socket, text string) got {
	t.Helper()
	c := must.Get(net.Dial("unix", socket))(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(generous))
	go func() { _, _ = io.WriteString(c, text) }()
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	must.True(t, err == nil, "no answer: %v", err)
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(t)
	g := got{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if g.status >= 400 && method != "HEAD" {
		ct := g.header.Get("Content-Type")
		expect.True(t, ct == client.ProblemType, "Content-Type %q: %s", ct, b)
		if err := json.Unmarshal(b, &g.problem); err != nil || g.problem.Kind == "" || g.problem.Status != g.status || g.problem.Detail == "" {
			t.Errorf("not a problem with a kind: %v: %s", err, b)
		}
	}
	return g
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

func put(path, body string) string {
	return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

const someID = "0123456789abcdef"

func TestHostileExternalIDsAreData(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	ids := []string{"../../etc", "-rf", "+49 170 1234567", "🦀", "a\nb", "%00", "chat-" + someID, strings.Repeat("x", 512), "\ufffd", "😀"}
	for _, ext := range ids {
		made, created, err := c.Create(t.Context(), chat.Spec{ExternalID: ext})
		expect.True(t, err == nil && created && made.ExternalID == ext,
			"create %q: %v %v %q", ext, created, err, made.ExternalID)
		page, err := c.List(t.Context(), chat.Filter{ExternalID: ext})
		expect.True(t, err == nil && len(page.Chats) == 1 && page.Chats[0].ID == made.ID,
			"list %q: %v %v", ext, err, page)
	}
	expect.True(t, mem.Made == len(ids), "made %d chats, want %d", mem.Made, len(ids))
}

func TestFiftySimultaneousCreatesMakeOne(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := 0
	seen := map[chat.ID]bool{}
	for range 50 {
		wg.Go(func() {
			c := client.NewClient(client.ClientOptions{Socket: socket})
			defer c.Close()
			made, fresh, err := c.Create(t.Context(), chat.Spec{ExternalID: "first message"})
			expect.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			seen[made.ID] = true
			if fresh {
				created++
			}
		})
	}
	wg.Wait()
	expect.True(t, created == 1 && len(seen) == 1 && mem.Made == 1,
		"%d said created, %d ids, %d made; want 1 of each", created, len(seen), mem.Made)
}
