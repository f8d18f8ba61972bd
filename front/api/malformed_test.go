package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// page is what net/http writes by itself where it cannot read a request.
const page = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// maxOffset is the last offset at which a file has the page.
const maxOffset = 70_000

// forged returns files that together hold the page at every offset up to maxOffset: each repeats
// it, after 0 bytes, after 1 byte, and so on.
func forged() [][]byte {
	var all [][]byte
	for shift := range len(page) {
		b := append(bytes.Repeat([]byte("x"), shift), bytes.Repeat([]byte(page), maxOffset/len(page)+2)...)
		all = append(all, b)
	}
	return all
}

// serveForged serves a file of forged by its number, in pieces of a size that changes.
func serveForged(t *testing.T) (socket string, c *client.Client, id chat.ID) {
	t.Helper()
	socket, _, c, id = withChat(t, ServerOptions{})
	for i, b := range forged() {
		a := filewire.WriteFile{Path: fmt.Sprint("f", i), Stream: true}
		must.Do(t, expect.Err(c.WriteFile(t.Context(), id, a, bytes.NewReader(b))))
	}
	return socket, c, id
}

// inPieces serves b as a download in writes of size bytes.
func inPieces(b []byte, size int) func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error) {
	return func(_ context.Context, _ filewire.Tool, begin filewire.Begin, _ io.Reader) (filewire.Answer, error) {
		w := begin(filewire.Answer{Size: int64(len(b))})
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				return filewire.Answer{}, err
			}
			rest = rest[n:]
		}
		return filewire.Answer{Size: int64(len(b)), Bytes: int64(len(b))}, nil
	}
}

// TestAttackForgedAnswers: no bytes of a file are taken for net/http's page: each file arrives
// whole, over one connection.
func TestAttackForgedAnswers(t *testing.T) {
	_, c, id := serveForged(t)
	for i, want := range forged() {
		var got bytes.Buffer
		if _, err := c.ReadFile(t.Context(), id, filewire.ReadFile{Path: fmt.Sprint("f", i), Stream: true}, to(&got)); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("file %d: %d of %d bytes, %v", i, got.Len(), len(want), err)
		}
	}
}

// TestAttackForgedPieces is the same for writes of any size.
func TestAttackForgedPieces(t *testing.T) {
	_, mem, c, id := withChat(t, ServerOptions{})
	for _, size := range []int{1, len(page), 2048, 4090, 4096, 32 << 10, 64 << 10, 1 << 20} {
		for shift := range 8 {
			want := append(bytes.Repeat([]byte("x"), shift), bytes.Repeat([]byte(page), 200)...)
			mem.OnFile(inPieces(want, size))
			var got bytes.Buffer
			if _, err := c.ReadFile(t.Context(), id, filewire.ReadFile{Path: "f", Stream: true}, to(&got)); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("pieces of %d, shift %d: %d of %d bytes, %v", size, shift, got.Len(), len(want), err)
			}
		}
	}
}

// Requests that wait behind a file get their own answers, and none that the file contains.
func TestAttackForgedPipelined(t *testing.T) {
	socket, c, id := serveForged(t)
	must.Do(t, c.Input(t.Context(), id, chat.Input{Text: "what B says"}))
	all := forged()
	conn, in := pipeline(t, socket)
	go func() {
		for i := range all {
			_, _ = io.WriteString(conn, get(fmt.Sprintf("/v1/chats/%s/files/content?path=f%d", id, i))+get("/v1/chats/"+string(id)+"/screen"))
		}
		_, _ = io.WriteString(conn, "no HTTP\r\n\r\n")
	}()
	for i, want := range all {
		if status, kind, got := one(t, in); status != 200 || kind != client.ByteType || got != string(want) {
			t.Fatalf("file %d: %d %s, %d of %d bytes", i, status, kind, len(got), len(want))
		}
		if status, kind, got := one(t, in); status != 200 || kind != client.JSONType || !strings.Contains(got, "what B says") {
			t.Fatalf("screen behind file %d: %d %s %.200s", i, status, kind, got)
		}
	}
	// After these answers, as on a new connection, net/http's page becomes a problem.
	status, kind, got := one(t, in)
	var p client.Problem
	if err := json.Unmarshal([]byte(got), &p); err != nil || status != 400 || kind != client.ProblemType || p.Kind != "invalid" {
		t.Errorf("behind the answers: %d %s %q", status, kind, got)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after it: %q %v", rest, err)
	}
}

func pipeline(t *testing.T, socket string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := dial(t, socket)
	must.Do(t, c.SetDeadline(time.Now().Add(generous)))
	return c, bufio.NewReader(c)
}

// one reads one answer of several.
func one(t *testing.T, in *bufio.Reader) (status int, kind, body string) {
	t.Helper()
	res := must.Get(http.ReadResponse(in, nil))(t)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must.True(t, err == nil, "%v after %d bytes", err, len(b))
	return res.StatusCode, res.Header.Get("Content-Type"), string(b)
}

// Every answer of net/http's own is one problem, also the first of a connection, and the
// connection ends with it.
func TestMalformedRequestsAreProblems(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	for text, want := range map[string]int{
		"no HTTP\r\n\r\n":                          400,
		"GET / HTTP/1.1\r\n\r\n":                   400,
		"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n": 505,
		"POST /v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n": 501,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: cake\r\n\r\n":              417,
	} {
		for _, before := range []int{0, 1, 3} {
			conn, in := pipeline(t, socket)
			_, _ = io.WriteString(conn, strings.Repeat(get("/healthz"), before)+text)
			for range before {
				status, _, got := one(t, in)
				expect.True(t, status == 200, "healthz: %d %s", status, got)
			}
			status, kind, got := one(t, in)
			var p client.Problem
			if err := json.Unmarshal([]byte(got), &p); err != nil || status != want || kind != client.ProblemType || p.Kind != "invalid" || p.Status != want {
				t.Errorf("%q behind %d: %d %s %q", text, before, status, kind, got)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%q behind %d: then %q %v", text, before, rest, err)
			}
		}
	}
}

// needProgram skips, loudly, if a program that make packages installs is missing.
func needProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CHATD_TEST_REQUIRE") == "all":
		t.Fatalf("needs %s, and CHATD_TEST_REQUIRE=all", name)
	}
	t.Skipf("needs %s", name)
	return ""
}

// forgedDir is a directory with the files as they should arrive.
func forgedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, b := range forged() {
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), b, 0o600))
	}
	return dir
}

// keepAlive.py is given socket, chat, directory and how many files there are.
const keepAlive = `
import http.client, socket, sys
path, chat, want, files = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
c = http.client.HTTPConnection("chatd")
c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(path); c.auto_open = 0
for i in range(files):
    c.request("GET", f"/v1/chats/{chat}/files/content?path=f{i}")
    r = c.getresponse(); got = r.read()
    if r.status != 200 or got != open(f"{want}/f{i}", "rb").read():
        sys.exit(f"file {i}: {r.status}, {len(got)} bytes")
    c.request("GET", f"/v1/chats/{chat}/screen")
    r = c.getresponse(); got = r.read()
    if r.status != 200 or b"what B says" not in got:
        sys.exit(f"screen behind file {i}: {r.status} {got[:200]}")
print("whole")
`

func TestAttackForgedPython(t *testing.T) {
	python := needProgram(t, "python3")
	socket, c, id := serveForged(t)
	must.Do(t, c.Input(t.Context(), id, chat.Input{Text: "what B says"}))
	out, err := exec.Command(python, "-c", keepAlive, socket, string(id), forgedDir(t), fmt.Sprint(len(page))).CombinedOutput()
	expect.True(t, err == nil && strings.Contains(string(out), "whole"), "%v: %s", err, out)
}

func TestAttackForgedCurl(t *testing.T) {
	curl := needProgram(t, "curl")
	socket, _, id := serveForged(t)
	dir := t.TempDir()
	args := []string{"-sS", "--fail", "--unix-socket", socket}
	for i := range page {
		args = append(args, "-o", filepath.Join(dir, fmt.Sprint("f", i)), fmt.Sprintf("http://chatd/v1/chats/%s/files/content?path=f%d", id, i))
	}
	if out, err := exec.Command(curl, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range forged() {
		if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("f", i))); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("file %d: %d of %d bytes, %v", i, len(got), len(want), err)
		}
	}
}
