package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// origin is a server outside that keeps the requests as it gets them.
type origin struct {
	addr netip.AddrPort
	host string // with the port, as a client writes it

	mu       sync.Mutex
	requests []string
	conns    int
}

// newOrigin is one that answers each request by answer, which may be nil.
func newOrigin(t *testing.T, answer func(w *net.TCPConn, r *http.Request, b *bufio.Reader)) *origin {
	o := new(origin)
	o.addr = listenTCP(t, func(c *net.TCPConn) {
		defer c.Close()
		o.mu.Lock()
		o.conns++
		o.mu.Unlock()
		o.serve(c, answer)
	})
	o.host = fmt.Sprintf("api.example.org:%d", o.addr.Port())
	return o
}

func (o *origin) serve(c *net.TCPConn, answer func(*net.TCPConn, *http.Request, *bufio.Reader)) {
	var head strings.Builder
	b := bufio.NewReader(c)
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			return
		}
		head.WriteString(line)
		if line != "\r\n" {
			continue
		}
		r, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head.String()), b)))
		if err != nil {
			return
		}
		o.mu.Lock()
		o.requests = append(o.requests, head.String())
		o.mu.Unlock()
		head.Reset()
		if answer != nil {
			answer(c, r, b)
		} else if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

func (o *origin) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.requests...)
}

// send writes a text and returns the reader of what comes back.
func send(t *testing.T, c *net.TCPConn, text string) *bufio.Reader {
	t.Helper()
	must.Get(io.WriteString(c, text))(t)
	return bufio.NewReader(c)
}

// answer reads one answer.
func answer(t *testing.T, b *bufio.Reader, status int) string {
	t.Helper()
	r := must.Get(http.ReadResponse(b, nil))(t)
	body, err := io.ReadAll(r.Body)
	expect.True(t, err == nil && r.StatusCode == status, "%s %q, %v, want %d", r.Status, body, err, status)
	return string(body)
}

// TestWeb: a request arrives as it was, with nothing added, over one connection for all.
func TestWeb(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	want := []string{
		"GET /a%2Fb/../c?x=1;y=%zz&&z HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: API.example.ORG.:" + strings.Split(o.host, ":")[1] +
			"\r\nUser-Agent: mine\r\nAccept-Encoding: br\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"GET //other.example/ HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n",
	}
	b := send(t, c, "")
	for _, r := range want {
		send(t, c, r)
		answer(t, b, 200)
	}
	got := o.seen()
	for i := range want {
		if i >= len(got) || sorted(got[i]) != sorted(want[i]) {
			t.Errorf("%q, want %q", got, want[i])
		}
	}
	expect.True(t, o.conns == 1, "%d connections", o.conns)
	c.Close()
	e := w.event(Allowed, "")
	expect.True(t, e.Out != 0 && e.In != 0 && e.Host == "api.example.org", "%+v", e)
}

// sorted is a header without the order of its fields.
func sorted(head string) string {
	lines := strings.Split(head, "\r\n")
	for i := range lines {
		for j := 1; j < i; j++ {
			if lines[i] < lines[j] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return strings.Join(lines, "\r\n")
}

// TestWebAnswer: an answer arrives with the fields that the server sent, and no others.
func TestWebAnswer(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "GET / HTTP/1.0\r\nHost: "+o.host+"\r\n\r\n")
	got, err := io.ReadAll(b)
	want := "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"
	expect.True(t, string(got) == want && err == nil, "%q, %v, want %q", got, err, want)
}

// TestWebLies: each request must be to the host that the address stands for.
func TestWebLies(t *testing.T) {
	for name, request := range map[string]string{
		"other host":        "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
		"other port":        "GET / HTTP/1.1\r\nHost: api.example.org:1\r\n\r\n",
		"no host":           "GET / HTTP/1.0\r\n\r\n",
		"empty host":        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"below":             "GET / HTTP/1.1\r\nHost: x.api.example.org\r\n\r\n",
		"address":           "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"absolute":          "GET http://other.example/ HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"absolute secure":   "GET https://api.example.org/ HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"user in authority": "GET http://api.example.org@other.example/ HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"opaque":            "GET http:http://other.example/x HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"connect":           "CONNECT api.example.org HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"connect other":     "CONNECT other.example:443 HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := newOrigin(t, nil)
			c := w.byName("api.example.org", o.addr)
			b := send(t, c, request)
			if body := answer(t, b, 421); !strings.Contains(body, o.host) &&
				name != "connect other" &&
				name != "connect" && name != "absolute secure" && name != "opaque" {
				t.Errorf("%q", body)
			}
			expect.True(t, expect.Err(b.ReadByte()) != nil, "the connection goes on")
			got := o.seen()
			expect.True(t, len(got) == 0, "%q", got)
			w.event(Refused, "HTTP")
		})
	}
}

// TestWebRefusesForm: what package http does not take for a request passes to nobody.
func TestWebRefusesForm(t *testing.T) {
	host := "Host: api.example.org\r\n"
	for name, request := range map[string]string{
		"two hosts":       "GET / HTTP/1.1\r\n" + host + "Host: other.example\r\n\r\n",
		"two lengths":     "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"space in name":   "GET / HTTP/1.1\r\n" + host + "Content-Length : 1\r\n\r\nx",
		"other encoding":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
		"no host in HTTP": "GET / HTTP/1.1\r\n\r\n",
		"huge header": "GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x",
			maxHeader+8192) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := newOrigin(t, nil)
			c := w.byName("api.example.org", o.addr)
			go func() { _, _ = io.WriteString(c, request) }()
			b := make([]byte, 12)
			if n, err := io.ReadFull(c, b); err == nil && b[9] != '4' && b[9] != '5' {
				t.Errorf("%q", b[:n])
			}
			got := o.seen()
			expect.True(t, len(got) == 0, "%q", got)
			c.Close()
		})
	}
}

// TestWebSmuggling: where two lengths contradict each other, the server sees one.
func TestWebSmuggling(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, r *http.Request, b *bufio.Reader) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	c := w.byName("api.example.org", o.addr)
	inner := "GET /admin HTTP/1.1\r\nHost: other.example\r\n\r\n"
	send(t, c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s",
		o.host, len(inner)+5, inner))
	_, _ = io.ReadAll(c)
	for _, r := range o.seen() {
		if strings.Contains(r, "other.example") || strings.Contains(r, "Content-Length") &&
			strings.Contains(r, "chunked") {
			t.Errorf("%q", r)
		}
	}
}

// TestWebLiesLater: the second of two requests that come together lies.
func TestWebLiesLater(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	b := send(t, c,
		"GET /1 HTTP/1.1\r\nHost: "+o.host+"\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.example\r\n\r\n")
	answer(t, b, 200)
	answer(t, b, 421)
	expect.True(t, expect.Err(b.ReadByte()) != nil, "the connection goes on")
	got := o.seen()
	expect.True(t, len(got) == 1, "%q", got)
	w.event(Refused, "other.example")
}

func TestWebAbsolute(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	answer(t, send(t, c, "GET http://"+o.host+"/x HTTP/1.1\r\nHost: other.example\r\n\r\n"), 200)
	got := o.seen()
	expect.True(t, len(got) == 1 && got[0] == "GET /x HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n", "%q", got)
}

func TestWeb2(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	send(t, c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	wantReset(t, c)
	w.event(Refused, "HTTP/2")
	got := o.seen()
	expect.True(t, len(got) == 0, "%q", got)
}

// TestWebUpgrade: after 101 the bytes are the peers' own, and each side may end alone.
func TestWebUpgrade(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, r *http.Request, b *bufio.Reader) {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nhello", r.Header.Get("Upgrade"))
		_, _ = io.Copy(c, b)
		_ = c.CloseWrite()
	})
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
	r, err := http.ReadResponse(b, nil)
	if err != nil || r.StatusCode != 101 || r.Header.Get("Upgrade") != "websocket" {
		t.Fatal(r, err)
	}
	send(t, c, "GET \x00 bytes")
	must.Do(t, c.CloseWrite())
	got, err := io.ReadAll(b)
	expect.True(t, string(got) == "helloGET \x00 bytes" && err == nil, "%q, %v", got, err)
	w.event(Allowed, "")
}

// TestWebUpgradeHides: an upgrade to another protocol of the web is left out.
func TestWebUpgradeHides(t *testing.T) {
	for _, upgrade := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.2", "HTTP/2.0"} {
		w := newWorld(t)
		o := newOrigin(t, nil)
		c := w.byName("api.example.org", o.addr)
		answer(t, send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+
			"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAA\r\n\r\n"), 200)
		got := o.seen()
		expect.True(t, len(got) == 1 && got[0] == "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n", "%q", got)
		c.Close()
	}
}

// TestWebStreams: a body goes up, and an answer down, while they are made.
func TestWebStreams(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, r *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			if _, writeErr := c.Write(b[:n]); err != nil || writeErr != nil {
				c.Close()
				return
			}
		}
	})
	c := w.byName("api.example.org", o.addr)
	b := send(t, c,
		"POST / HTTP/1.1\r\nHost: "+o.host+"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	r := must.Get(http.ReadResponse(b, nil))(t)
	for i, text := range []string{"one", "two", "six"} {
		if i > 0 {
			send(t, c, "3\r\n"+text+"\r\n")
		}
		got := make([]byte, 3)
		_, err := io.ReadFull(r.Body, got)
		must.True(t, string(got) == text && err == nil, "%q, %v", got, err)
	}
	send(t, c, "0\r\n\r\n")
	got, err := io.ReadAll(r.Body)
	expect.True(t, len(got) == 0 && err == nil, "%q, %v", got, err)
}

// TestWebUpload: a long body of either form arrives whole.
func TestWebUpload(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		w := newWorld(t)
		o := newOrigin(t, func(c *net.TCPConn, r *http.Request, _ *bufio.Reader) {
			n, err := io.Copy(io.Discard, r.Body)
			text := fmt.Sprint(n, err, r.ContentLength)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		})
		c := w.byName("api.example.org", o.addr)
		const size = 5 << 20
		r := must.Get(http.NewRequest("PUT", "http://"+o.host+"/",
			io.LimitReader(strings.NewReader(strings.Repeat("x", size)), size)))(t)
		want := fmt.Sprint(size, nil, -1)
		if !chunked {
			r.ContentLength, want = size, fmt.Sprint(size, nil, size)
		}
		go func() { _ = r.Write(c) }()
		if got := answer(t, bufio.NewReader(c), 200); got != want {
			t.Error(got, want)
		}
		c.Close()
	}
}

// TestWebServerEnds: the next request goes over a new connection.
func TestWebServerEnds(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c,
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		c.Close()
	})
	c := w.byName("api.example.org", o.addr)
	b := bufio.NewReader(c)
	for range 2 {
		send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n")
		answer(t, b, 200)
	}
	expect.True(t, o.conns == 2, "%d connections", o.conns)
}

// TestWebClosed: Close and Change end connections of HTTP as any other, also amid an answer.
func TestWebClosed(t *testing.T) {
	w := newWorld(t)
	amid := make(chan struct{}, 1)
	ended := make(chan error, 1)
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
		amid <- struct{}{}
		_, err := io.ReadAll(c)
		ended <- err
	})
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n")
	<-amid
	must.Get(b.ReadByte())(t)
	must.Do(t, w.s.close(one))
	expect.Is(t, expect.Err(io.ReadAll(b)), unix.ECONNRESET, "")
	<-ended
	w.event(Allowed, "the chat's network has ended")
}

// TestWebCannotReach: a server that ends without an answer.
func TestWebCannotReach(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) { c.Close() })
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "POST / HTTP/1.1\r\nHost: "+o.host+"\r\nContent-Length: 1\r\n\r\nx")
	body := answer(t, b, 502)
	expect.True(t, strings.Contains(body, o.host), "%v", body)
}

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
	expect.True(t, each <= plainCost, "a session takes %d KiB", each>>10)
}

// TestWebTinyLines: headers of too many fields pass neither way.
func TestWebTinyLines(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	head := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n"
	answer(t, send(t, c, head+tiny(6*maxFields)+"\r\n"), http.StatusMisdirectedRequest)
	got := o.seen()
	expect.True(t, len(got) == 0, "%q", got)
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
	n := w.s.network(one)
	for range maxSessions {
		n.sessions <- struct{}{}
	}
	request := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n"
	b := send(t, c, request)
	got := o.seen()
	expect.True(t, len(got) == 0, "%q", got)
	<-n.sessions
	answer(t, b, 200)
	c.Close()
	w.event(Allowed, "")
	<-n.sessions
	costs := &w.s.web.costs
	costs.mu.Lock()
	expect.True(t, costs.left == webMemory && n.web.held == 0,
		"%d bytes are left, %d are the chat's", costs.left, n.web.held)
	costs.mu.Unlock()
	var others share
	ok, _ := costs.take(webMemory-plainCost+1, &share{}, &others, 0)
	must.True(t, ok, "no room")
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
	n := w.s.network(one)
	expect.True(t, !n.redials.Take(), "two more connections took nothing from the allowance")
	send(t, c, request) // waits, until the chat ends
	must.Do(t, w.s.close(one))
	got := o.seen()
	expect.True(t, len(got) == 3, "%d requests", len(got))
}

// answersAtOnce is how many answers of a model chats of one owner have at a time, and how many chats.
const answersAtOnce, askingChats = 500, 200

// inUse is the memory of the process, without what could be given back.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what had finalizers
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// holdAnswers begins this many answers at once, and returns what each takes of memory then.
func holdAnswers(tb testing.TB, ask func(i int) (*http.Response, error)) (bytesEach int64) {
	before := inUse()
	answers := make(chan *http.Response, answersAtOnce)
	beginning := make(chan struct{}, 16) // a slow machine has its time
	var all sync.WaitGroup
	for i := range answersAtOnce {
		beginning <- struct{}{}
		all.Go(func() {
			defer func() { <-beginning }()
			a, err := ask(i)
			if err != nil {
				tb.Error(err)
				return
			}
			line, err := bufio.NewReader(a.Body).ReadString('\n')
			if a.StatusCode != http.StatusOK || line != "data: hello\n" {
				tb.Errorf("answer %d: %s %q, %v", i, a.Status, line, err)
			}
			answers <- a
		})
	}
	all.Wait()
	bytesEach = (inUse() - before) / answersAtOnce
	for range len(answers) {
		(<-answers).Body.Close()
	}
	return bytesEach
}

// TestManyAnswers: 500 answers of a model that says a word now and then, to 200 chats of one owner,
// each over a connection of its own, are all there at once, by what they are counted. Their memory
// is less: -v has it, with that of the client and the server of the test.
func TestManyAnswers(t *testing.T) {
	w, finish := slowWorld(t)
	defer close(finish)
	t.Logf("%d KiB an answer", w.holdMany(false)>>10)
	w.s.web.costs.mu.Lock()
	defer w.s.web.costs.mu.Unlock()
	used := int64(webMemory) - w.s.web.costs.left
	expect.True(t, used <= webMemory*3/4, "they count %d MiB", used>>20)
}

// TestPipelinedIsCharged: requests that come at once cost what others do, one after the other,
// though the second and third are read with the first.
func TestPipelinedIsCharged(t *testing.T) {
	asked, answer := make(chan string), make(chan struct{})
	w := newSecretWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-answer
	})
	c := tls.Client(w.dialAPI(apiHost), &tls.Config{RootCAs: pool(t, authorities().own), ServerName: apiHost})
	defer c.Close()
	var all bytes.Buffer
	for _, path := range []string{"/1", "/2", "/3"} {
		fmt.Fprintf(&all, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, net.JoinHostPort(apiHost, portOf(w.addr)))
	}
	must.Get(c.Write(all.Bytes()))(t)
	for range 3 {
		path := <-asked
		held := w.held()
		expect.True(t, held == activeCost, "%d while %s is answered", held, path)
		answer <- struct{}{}
	}
}

// TestUnfinishedHeaderIsCharged: a request costs what others do from its first byte on, because
// net/http holds its header before it says that the connection is active.
func TestUnfinishedHeaderIsCharged(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	c := tls.Client(w.dialAPI(apiHost), &tls.Config{RootCAs: pool(t, authorities().own), ServerName: apiHost})
	defer c.Close()
	must.Get(c.Write([]byte("GET / HTTP/1.1\r\nX-Unfinished: ")))(t)
	waitUntil(t, func() bool { return w.held() == activeCost })
}

// holdMany begins answers over the chats of an owner, and returns what each takes.
func (w *secretWorld) holdMany(http2 bool) int64 {
	var chats [askingChats]*network
	for i := range chats {
		chats[i] = w.ofOwner(i)
	}
	var requests [answersAtOnce]*http.Request
	var clients [answersAtOnce]*http.Client
	for i := range requests {
		requests[i] = w.request("POST", "/", nil)
		of := *w
		of.n = chats[i%askingChats]
		clients[i] = of.client(http2)
	}
	return holdAnswers(w.t, func(i int) (*http.Response, error) {
		return clients[i].Do(requests[i])
	})
}

// TestIdleMemory: what a connection without a request takes is less than what it counts, with the
// client and the server of the test.
func TestIdleMemory(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w := newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") })
		before := inUse()
		var all []*http.Client
		for range maxSessions {
			all = append(all, w.client(http2))
			w.do(all[len(all)-1], w.request("GET", "/", nil))
		}
		each := (inUse() - before) / maxSessions
		runtime.KeepAlive(all)
		t.Logf("%d KiB", each>>10)
		expect.True(t, each <= idleCost, "an idle connection takes %d KiB", each>>10)
	})
}

// TestRestingMemory: so it is over plain HTTP.
func TestRestingMemory(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	n := w.s.network(one)
	before := inUse()
	var all []*bufio.Reader
	for range maxSessions {
		all = append(all, send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n"))
		answer(t, all[len(all)-1], 200)
		c = w.dial(n, w.named(n, "api.example.org", o.addr.Port()))
	}
	each := (inUse() - before) / maxSessions
	runtime.KeepAlive(all)
	t.Logf("%d KiB", each>>10)
	expect.True(t, each <= restingCost, "an idle connection takes %d KiB", each>>10)
}
