package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestGetAnswers: answers of each form arrive whole, one after another on one connection, and a
// server that ends its own is connected to again.
func TestGetAnswers(t *testing.T) {
	const text = "HTTP/1.1 200 OK\r\n"
	answers := map[string]string{
		"/length": text + "Content-Length: 4\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\nbody",
		"/chunks": text + "Transfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n" +
			"4\r\nbody\r\n0\r\nX-End: 1\r\n\r\n",
		"/end": text + "\r\nbody",
		"/old": "HTTP/1.0 200 OK\r\n\r\nbody",
		"/hints": "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + text +
			"Content-Length: 4\r\n\r\nbody",
		"/nothing": "HTTP/1.1 204 No Content\r\n\r\n",
	}
	ends := []string{"/end", "/old"}
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, r *http.Request, _ *bufio.Reader) {
		_, _ = io.WriteString(c, answers[r.URL.Path])
		if slices.Contains(ends, r.URL.Path) {
			c.Close()
		}
	})
	c := w.byName("api.example.org", o.addr)
	b := bufio.NewReader(c)
	for _, path := range []string{
		"/length", "/chunks", "/end", "/hints", "/old", "/nothing", "/length",
	} {
		send(t, c, "GET "+path+" HTTP/1.1\r\nHost: "+o.host+
			"\r\nConnection: keep-alive\r\n\r\n")
		a, err := http.ReadResponse(b, nil)
		if err == nil && a.StatusCode == http.StatusEarlyHints {
			a, err = http.ReadResponse(b, nil)
		} else if path == "/hints" {
			t.Errorf("no hints: %v", a)
		}
		if err != nil {
			t.Fatal(path, err)
		}
		want := "body"
		if path == "/nothing" {
			want = ""
		}
		if got, err := io.ReadAll(a.Body); string(got) != want || err != nil ||
			a.Header.Get("X-Hop") != "" || a.Close {
			t.Errorf("%s: %q, %v, %v", path, got, err, a)
		}
		if path == "/chunks" && a.Trailer.Get("X-End") != "1" {
			t.Errorf("trailers are %v", a.Trailer)
		}
	}
	if o.conns != 1+len(ends) {
		t.Errorf("%d connections", o.conns)
	}
}

// TestGetBreaks: an answer that breaks off is no whole one, and one that never begins is 502.
func TestGetBreaks(t *testing.T) {
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx":               "200",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx": "200",
		"":                               "502",
		"HTTP/1.1 101 Switching\r\n\r\n": "502",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader+8192) + "\r\n":  "502",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: 1\r\n", maxFields+1) + "\r\n": "502",
	} {
		w := newWorld(t)
		o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
			_, _ = io.WriteString(c, text)
			c.Close()
		})
		c := w.byName("api.example.org", o.addr)
		a, err := http.ReadResponse(send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n"), nil)
		if err != nil || fmt.Sprint(a.StatusCode) != want {
			t.Errorf("%.40q: %v, %v, want %s", text, a, err, want)
			continue
		}
		if _, err := io.ReadAll(a.Body); (err == nil) == (want == "200") {
			t.Errorf("%.40q: %v", text, err)
		}
		c.Close()
	}
}

// TestGetAbandoned: where the client goes before it is answered, the server learns it.
func TestGetAbandoned(t *testing.T) {
	w := newWorld(t)
	asked, ended := make(chan struct{}), make(chan struct{})
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, b *bufio.Reader) {
		close(asked)
		_, _ = b.ReadByte() // nothing comes
		close(ended)
	})
	c := w.byName("api.example.org", o.addr)
	send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n")
	<-asked
	c.Close()
	<-ended
}

// TestSimple: what says something of a body or of the connection is left to net/http.
func TestSimple(t *testing.T) {
	for field, want := range map[string]bool{
		"Accept: x": true, "Connection: Keep-Alive": true, "X: \xff": true, "Cookie: a=b": true,
		"Content-Length: 0": false, "Transfer-Encoding: chunked": false,
		"Expect: 100-continue": false,
		"Upgrade: websocket":   false, "Connection: close": false, "Connection: x": false,
		"Te: trailers": false, "Trailer: X": false, "Content-Length : 1": false, "X: a\nY: b": false,
		"X: a\rb": false, "X: \x00": false, "Keep-Alive: 1": false,
		"Connection: keep-alive\r\nConnection: x": false, "Host: api.example.org": false,
		"Proxy-Connection: close": false, "X: " + strings.Repeat("x", getBuffer): false,
	} {
		text := "GET / HTTP/1.1\r\nHost: api.example.org:80\r\n" + field + "\r\n\r\n"
		s := &webSession{begin: []byte(text)}
		s.t.host, s.t.dst = "api.example.org", netip.MustParseAddrPort("198.18.0.2:80")
		g := &gets{s: s, in: bufio.NewReaderSize(s, getBuffer)}
		r, size, err := g.next()
		if err != nil || (r != nil) != want || want && size != len(text) {
			t.Errorf("%.40q: %v of %d bytes, %v, want %v", field, r, size, err, want)
		}
	}
}
