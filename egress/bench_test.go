package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

// relayed is a world with one open chat, and connections of it to a server.
type relayed struct {
	n      *network
	w      *world
	server netip.AddrPort
}

func (r relayed) dial() *net.TCPConn { return r.w.dial(r.n, r.server) }

// BenchmarkConnect is a connection and a byte back: direct, by address and by name. The second
// connection to loopback, of the test itself, is part of the latter two.
func BenchmarkConnect(b *testing.B) {
	server := listenTCP(b, echo)
	once := func(b *testing.B, dial func() *net.TCPConn) {
		for b.Loop() {
			c := dial()
			wantEcho(b, c, "\x00")
			c.Close()
		}
	}
	b.Run("direct", func(b *testing.B) {
		once(b, func() *net.TCPConn { return direct(b, server) })
	})
	b.Run("address", func(b *testing.B) {
		w := newWorld(b)
		once(b, relayed{w.open(one, server.String()), w, server}.dial)
	})
	b.Run("name", func(b *testing.B) {
		w := newWorld(b)
		c := w.byName("api.example.org", server)
		wantEcho(b, c, "\x00")
		w.s.mu.Lock()
		n := w.s.networks[one]
		w.s.mu.Unlock()
		once(b, relayed{n, w, w.named(n, "api.example.org", server.Port())}.dial)
	})
}

func direct(b *testing.B, to netip.AddrPort) *net.TCPConn {
	c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkStream is one long stream from a server: direct and carried.
func BenchmarkStream(b *testing.B) {
	chunk := make([]byte, 1<<20)
	server := listenTCP(b, func(c *net.TCPConn) {
		defer c.Close()
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	read := func(b *testing.B, c *net.TCPConn) {
		defer c.Close()
		b.SetBytes(int64(len(chunk)))
		buf := make([]byte, len(chunk))
		for b.Loop() {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) { read(b, direct(b, server)) })
	b.Run("carried", func(b *testing.B) {
		w := newWorld(b)
		read(b, w.dial(w.open(one, server.String()), server))
	})
}

// BenchmarkRequests are requests over one connection: direct, of plain HTTP by name, over TLS that
// passes, and over TLS with a secret.
func BenchmarkRequests(b *testing.B) {
	handler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Host) }
	b.Run("direct", func(b *testing.B) {
		requests(b, direct(b, serveHTTP(b, handler)))
	})
	b.Run("plain", func(b *testing.B) {
		server := serveHTTP(b, handler)
		requests(b, newWorld(b).byName(apiHost, server))
	})
	b.Run("passed", func(b *testing.B) {
		w := newWorld(b)
		requests(b, clientTLS(w.byName(apiHost, serveTLS(b, apiHost, handler, nil))))
	})
	b.Run("secret", func(b *testing.B) {
		requests(b, clientTLS(newSecretWorld(b, handler).dialAPI(apiHost)))
	})
}

func clientTLS(c net.Conn) net.Conn {
	return tls.Client(c, &tls.Config{ServerName: apiHost, InsecureSkipVerify: true})
}

func requests(b *testing.B, c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for b.Loop() {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\n\r\n", apiHost, placeholder)
		a, err := http.ReadResponse(r, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
			b.Fatal(a.Status, err)
		}
	}
}

func serveHTTP(b *testing.B, h http.HandlerFunc) netip.AddrPort {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	b.Cleanup(func() { s.Close(); <-done })
	return addrOf(l.Addr())
}
