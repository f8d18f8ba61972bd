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

	"github.com/chatd/chatd/api/apitest"
	"github.com/chatd/chatd/chat"
)

// generous is longer than anything here takes on a slow machine.
const generous = 20 * time.Second

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
		t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
	}
	t.Skip("needs root: peers of other uids")
}

// start serves a Memory on a socket of its own. The test's own uid is an operator.
func start(t *testing.T, opt ServerOptions) (socket string, mem *apitest.Memory) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chatd-api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mem = apitest.New()
	if opt.Chats == nil {
		opt.Chats = mem
	}
	opt.Operators = append(opt.Operators, uint32(os.Getgid()))
	socket = filepath.Join(dir, "s")
	l, err := Listen(socket, append([]uint32{uint32(os.Getgid())}, opt.Bridges...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(opt)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket, mem
}

func client(t *testing.T, socket string) *Client {
	c := NewClient(ClientOptions{Socket: socket})
	t.Cleanup(c.Close)
	return c
}

// got is an answer as it came.
type got struct {
	status  int
	header  http.Header
	problem Problem
	body    string
}

// raw sends text as it is and reads one answer.
func raw(t *testing.T, socket, text string) got {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(generous))
	go func() { _, _ = io.WriteString(c, text) }()
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	g := got{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if g.status >= 400 && method != "HEAD" {
		if ct := g.header.Get("Content-Type"); ct != problemType {
			t.Errorf("Content-Type %q: %s", ct, b)
		}
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

const someID = "0123456789abcdef"

func TestHostileRequests(t *testing.T) {
	socket, _ := start(t, ServerOptions{MaxBody: 2 << 20})
	id := "/v1/chats/" + someID
	for _, tt := range []struct {
		name, request string
		status        int
		kind          string
	}{
		{"10 MB body", post("/v1/chats", `{"external_id":"`+strings.Repeat("a", 10<<20)+`"}`), 413, "invalid"},
		{"10 MB chunked", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\na00000\r\n" + strings.Repeat(" ", 10<<20) + "\r\n0\r\n\r\n", 413, "invalid"},
		{"a length that lies upwards is refused unread", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n", 413, "invalid"},
		{"100,000 deep arrays", post("/v1/chats", strings.Repeat("[", 100000)), 400, "invalid"},
		{"100,000 deep objects", post("/v1/chats", strings.Repeat(`{"a":`, 100000)), 400, "invalid"},
		{"wrong type", post("/v1/chats", `{"external_id":7}`), 400, "invalid"},
		{"array", post("/v1/chats", `[{"external_id":"a"}]`), 400, "invalid"},
		{"null", post("/v1/chats", `null`), 400, "invalid"},
		{"string", post("/v1/chats", `"a"`), 400, "invalid"},
		{"no body", post("/v1/chats", ``), 400, "invalid"},
		{"only space", post("/v1/chats", ` `), 400, "invalid"},
		{"empty object", post("/v1/chats", `{}`), 400, "invalid"},
		{"unknown field", post("/v1/chats", `{"external_id":"a","root":true}`), 400, "invalid"},
		{"field in other case", post("/v1/chats", `{"EXTERNAL_ID":"a"}`), 400, "invalid"},
		{"field in both cases", post("/v1/chats", `{"external_id":"a","External_ID":"b"}`), 400, "invalid"},
		{"key twice", post("/v1/chats", `{"external_id":"a","external_id":"b"}`), 400, "invalid"},
		{"key twice, one escaped", post("/v1/chats", `{"external_id":"a","external\u005fid":"b"}`), 400, "invalid"},
		{"label twice", post("/v1/chats", `{"external_id":"a","labels":{"k":"1","k":"2"}}`), 400, "invalid"},
		{"two values", post("/v1/chats", `{"external_id":"a"}{"external_id":"b"}`), 400, "invalid"},
		{"trailing comma", post("/v1/chats", `{"external_id":"a",}`), 400, "invalid"},
		{"raw NUL", post("/v1/chats", "{\"external_id\":\"a\x00b\"}"), 400, "invalid"},
		{"escaped NUL", post("/v1/chats", `{"external_id":"a\u0000b"}`), 400, "invalid"},
		{"invalid UTF-8", post("/v1/chats", "{\"external_id\":\"a\xff\"}"), 400, "invalid"},
		{"half a surrogate pair", post("/v1/chats", `{"external_id":"\ud800"}`), 400, "invalid"},
		{"surrogates the wrong way round", post("/v1/chats", `{"external_id":"\udc00\ud800"}`), 400, "invalid"},
		{"empty external id", post("/v1/chats", `{"external_id":""}`), 400, "invalid"},
		{"10,000 characters", post("/v1/chats", `{"external_id":"`+strings.Repeat("x", 10000)+`"}`), 400, "invalid"},
		{"513 bytes in 171 characters", post("/v1/chats", `{"external_id":"`+strings.Repeat("한", 171)+`"}`), 400, "invalid"},
		{"profile as path", post("/v1/chats", `{"external_id":"a","profile":"../../etc"}`), 400, "invalid"},
		{"agent as option", post("/v1/chats", `{"external_id":"a","agent":"-rf"}`), 400, "invalid"},
		{"label name as option", post("/v1/chats", `{"external_id":"a","labels":{"-rf":"x"}}`), 400, "invalid"},
		{"form", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
		{"no content type", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
		{"latin-1", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=latin-1\r\nContent-Length: 19\r\n\r\n{\"external_id\":\"a\"}", 415, "invalid"},
		{"body where none belongs", post(id+"/wake", `{"x":1}`), 400, "invalid"},
		{"unknown chat", get(id), 404, "not_found"},
		{"upper-case id", get("/v1/chats/0123456789ABCDEF"), 400, "invalid"},
		{"prefix of an id", get("/v1/chats/0123"), 400, "invalid"},
		{"id -rf", get("/v1/chats/-rf"), 400, "invalid"},
		{"10,000 character id", get("/v1/chats/" + strings.Repeat("a", 10000)), 400, "invalid"},
		{"encoded dots", get("/v1/chats/%2e%2e/%2e%2e/etc"), 404, "not_found"},
		{"dots", get("/v1/chats/../host"), 404, "not_found"},
		{"dot", get("/v1/./host"), 404, "not_found"},
		{"double slash", get("/v1//host"), 404, "not_found"},
		{"two slashes in front", get("//v1/host"), 404, "not_found"},
		{"trailing slash", get("/v1/host/"), 404, "not_found"},
		{"encoded slash", get("/v1/chats/a%2fb"), 404, "not_found"},
		{"encoded NUL", get("/v1/chats/%00"), 404, "not_found"},
		{"encoded letter", get("/v1/hos%74"), 404, "not_found"},
		{"backslash", get("/v1\\host"), 404, "not_found"},
		{"root", get("/"), 404, "not_found"},
		{"no such path", get("/v2/chats"), 404, "not_found"},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, "not_found"},
		{"method", "PUT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
		{"options", "OPTIONS /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
		{"trace", "TRACE /v1/host HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
		{"method of nobody", "SPAWN /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
		{"connect", "CONNECT /v1/chats HTTP/1.1\r\nHost: x\r\n\r\n", 405, "invalid"},
		{"unknown query", get("/v1/chats?sort=id"), 400, "invalid"},
		{"query twice", get("/v1/chats?limit=1&limit=2"), 400, "invalid"},
		{"limit 0", get("/v1/chats?limit=0"), 400, "invalid"},
		{"limit below 0", get("/v1/chats?limit=-1"), 400, "invalid"},
		{"limit above", get("/v1/chats?limit=99999999999999999999"), 400, "invalid"},
		{"awake maybe", get("/v1/chats?awake=maybe"), 400, "invalid"},
		{"query NUL", get("/v1/chats?label=%00"), 400, "invalid"},
		{"query invalid UTF-8", get("/v1/chats?label=%ff"), 400, "invalid"},
		{"query half escape", get("/v1/chats?label=%f"), 400, "invalid"},
		{"run without command", post(id+"/runs", `{}`), 400, "invalid"},
		{"run with both", post(id+"/runs", `{"command":"a","argv":["a"]}`), 400, "invalid"},
		{"timeout as number", post(id+"/runs", `{"command":"a","timeout":60}`), 400, "invalid"},
		{"timeout as words", post(id+"/runs", `{"command":"a","timeout":"soon"}`), 400, "invalid"},
		{"timeout below 0", post(id+"/runs", `{"command":"a","timeout":"-1s"}`), 400, "invalid"},
		{"argv of numbers", post(id+"/runs", `{"argv":[1]}`), 400, "invalid"},
		{"argv null", post(id+"/runs", `{"argv":[null]}`), 400, "invalid"},
		{"env name with =", post(id+"/runs", `{"command":"a","env":{"A=B":"c"}}`), 400, "invalid"},
		{"input of nothing", post(id+"/input", `{}`), 400, "invalid"},
		{"input of both", post(id+"/input", `{"text":"a","keys":["C-c"]}`), 400, "invalid"},
		{"not HTTP", "hello\r\n\r\n", 400, "invalid"},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "invalid"},
		{"space in the path", "GET /v1/ho st HTTP/1.1\r\nHost: x\r\n\r\n", 400, "invalid"},
		{"header of 1 MB", "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 431, "invalid"},
		{"10,000 headers", "GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: a\r\n", 10000) + "\r\n", 431, "invalid"},
		{"odd transfer encoding", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "invalid"},
		{"two lengths", "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400, "invalid"},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, "not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := raw(t, socket, tt.request)
			if g.status != tt.status || g.problem.Kind != tt.kind {
				t.Errorf("got %d %s, want %d %s: %.300s", g.status, g.problem.Kind, tt.status, tt.kind, g.body)
			}
			if len(g.body) > 4096 {
				t.Errorf("the answer has %d bytes", len(g.body))
			}
		})
	}
}

func TestHostileExternalIDsAreData(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := client(t, socket)
	ids := []string{"../../etc", "-rf", "+49 170 1234567", "🦀", "a\nb", "%00", "chat-" + someID, strings.Repeat("x", 512), "\ufffd", "😀"}
	for _, ext := range ids {
		made, created, err := c.Create(t.Context(), chat.Spec{ExternalID: ext})
		if err != nil || !created || made.ExternalID != ext {
			t.Errorf("create %q: %v %v %q", ext, created, err, made.ExternalID)
		}
		page, err := c.List(t.Context(), chat.Filter{ExternalID: ext})
		if err != nil || len(page.Chats) != 1 || page.Chats[0].ID != made.ID {
			t.Errorf("list %q: %v %v", ext, err, page)
		}
	}
	if mem.Made != len(ids) {
		t.Errorf("made %d chats, want %d", mem.Made, len(ids))
	}
}

func TestFiftyCreatesAtOnceMakeOne(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := 0
	seen := map[chat.ID]bool{}
	for range 50 {
		wg.Go(func() {
			c := NewClient(ClientOptions{Socket: socket})
			defer c.Close()
			made, fresh, err := c.Create(t.Context(), chat.Spec{ExternalID: "first message"})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[made.ID] = true
			if fresh {
				created++
			}
		})
	}
	wg.Wait()
	if created != 1 || len(seen) != 1 || mem.Made != 1 {
		t.Errorf("%d said created, %d ids, %d made; want 1 of each", created, len(seen), mem.Made)
	}
}
