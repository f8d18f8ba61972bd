package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// tiny is a header of the shortest lines, which cost the most memory for each byte.
func tiny(size int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		n := len(letters)
		fmt.Fprintf(&b, "%c%c%c:\n", letters[i%n], letters[i/n%n], letters[i/n/n%n])
	}
	return b.String()
}

// TestWebMemory: the worst header of a session costs no more than what is counted for it.
func TestWebMemory(t *testing.T) {
	const sample = 16
	text := "GET / HTTP/1.1\r\nHost: x\r\n" + tiny(maxHeader+4096) + "\r\n"
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all [sample]*http.Request
	for i := range all {
		var err error
		if all[i], err = http.ReadRequest(bufio.NewReader(strings.NewReader(text))); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / sample
	runtime.KeepAlive(all)
	t.Logf("%d KiB a session", each>>10)
	if each > plainCost {
		t.Errorf("a session takes %d KiB", each>>10)
	}
}

// TestWebTinyLines: headers of too many fields pass neither way.
func TestWebTinyLines(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	head := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n"
	answer(t, send(t, c, head+tiny(6*maxFields)+"\r\n"), http.StatusMisdirectedRequest)
	if got := o.seen(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	p := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"+
			tiny(6*maxFields)+"\r\n")
	})
	d := w.byName("api.example.org", p.addr)
	answer(t, send(t, d, "GET / HTTP/1.1\r\nHost: "+p.host+"\r\n\r\n"), http.StatusBadGateway)
}

// TestWebSessions: a chat's sessions are bounded, and more wait for one to end; beyond the bound
// of all chats they are refused.
func TestWebSessions(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	w.s.mu.Lock()
	n := w.s.networks[one]
	w.s.mu.Unlock()
	for range maxSessions {
		n.sessions <- struct{}{}
	}
	request := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n"
	b := send(t, c, request)
	if got := o.seen(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	<-n.sessions
	answer(t, b, 200)
	c.Close()
	w.event(Allowed, "")
	<-n.sessions
	costs := &w.s.web.costs
	costs.mu.Lock()
	if costs.left != webMemory || n.web.held != 0 {
		t.Errorf("%d bytes are left, %d are the chat's", costs.left, n.web.held)
	}
	costs.mu.Unlock()
	var others share
	if ok, _ := costs.take(webMemory-plainCost+1, &share{}, &others, 0); !ok {
		t.Fatal("no room")
	}
	enterTimeout = time.Millisecond
	t.Cleanup(func() { enterTimeout = headerTimeout })
	d := w.dial(n, w.named(n, "api.example.org", o.addr.Port()))
	answer(t, send(t, d, request), http.StatusServiceUnavailable)
	d.Close()
	w.event(Refused, "too many connections of HTTP")
	enterTimeout = headerTimeout
	d = w.dial(n, w.named(n, "api.example.org", o.addr.Port()))
	b = send(t, d, request) // waits
	costs.give(webMemory-plainCost+1, &share{}, &others)
	answer(t, b, 200)
}

// TestWebRedials: a server that closes after each answer does not get around the chat's allowance.
func TestWebRedials(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c,
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.Close()
	})
	w.s.mu.Lock()
	w.s.fresh = func() *quota.Allowance { return quota.NewAllowance(2, time.Hour, time.Now) }
	w.s.mu.Unlock()
	c := w.byName("api.example.org", o.addr)
	request := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n"
	b := bufio.NewReader(c)
	for range 3 {
		send(t, c, request)
		answer(t, b, 200)
	}
	w.s.mu.Lock()
	n := w.s.networks[one]
	w.s.mu.Unlock()
	expect.True(t, !n.redials.Take(), "two more connections took nothing from the allowance")
	send(t, c, request) // waits, until the chat ends
	must.Do(t, w.s.close(one))
	if got := o.seen(); len(got) != 3 {
		t.Errorf("%d requests", len(got))
	}
}
