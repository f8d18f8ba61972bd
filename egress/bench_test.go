package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/chatd/chatd/uplink"
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

// rootEnv marks a second run of the test binary, which is chatd-root for the server at this path.
const rootEnv = "CHATD_TEST_EGRESS_ROOT"

// rootProcess serves until the server ends.
func rootProcess(path string) error {
	c, err := dialUplink(path)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(context.Background(), (&fakeRoot{Conn: c}).answer) }()
	if _, _, err := c.Call(context.Background(), uplink.Call{Verb: uplink.Hello}); err != nil {
		return err
	}
	fmt.Println("ready")
	return <-ended
}

// rootApart has sockets come from another process, as they do.
func (w *world) rootApart() {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), rootEnv+"="+w.path)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		w.t.Fatalf("%q, %v", line, err)
	}
}

// BenchmarkConnectParts is where the time of a connection by address goes, with chatd-root in
// another process: asking it for a socket, connect(2) until the server has answered, and all of it.
func BenchmarkConnectParts(b *testing.B) {
	server := listenTCP(b, echo)
	begin := func(b *testing.B) relayed {
		w := newWorld(b)
		r := relayed{w.open(one, server.String()), w, server}
		w.rootApart()
		return r
	}
	b.Run("socket", func(b *testing.B) {
		n := begin(b).n
		for b.Loop() {
			f, err := n.s.root.file(b.Context(), uplink.Call{Verb: uplink.Socket, Chat: n.id})
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			f, err := (&fakeRoot{}).socket(uplink.Call{Verb: uplink.Socket})
			if err == nil {
				err = errors.Join(connect(b.Context(), f, server), f.Close())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		r := begin(b)
		for b.Loop() {
			c := r.dial()
			wantEcho(b, c, "\x00")
			c.Close()
		}
	})
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
