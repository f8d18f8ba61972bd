package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// certificate is one for any name.
func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// tlsEcho is a TLS server that echoes.
func tlsEcho(t testing.TB) func(*net.TCPConn) {
	cert := certificate(t)
	return func(c *net.TCPConn) {
		defer c.Close()
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		_, _ = io.Copy(s, s)
	}
}

func tlsConfig(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true}
}

func TestTLS(t *testing.T) {
	for name, right := range map[string]bool{
		"api.example.org": true, "API.Example.ORG": true,
		"other.example.org": false, "example.org": false, "x.api.example.org": false,
		"": false, "127.0.0.1": false, // clients send no name for an address
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.byName("api.example.org", listenTCP(t, tlsEcho(t)))
			s := tls.Client(c, tlsConfig(name))
			_, err := io.WriteString(s, "hello")
			if !right {
				expect.True(t, errors.Is(err, unix.ECONNRESET), "%v, want a reset", err)
				w.event(Refused, "TLS")
				return
			}
			b := make([]byte, 5)
			if _, readErr := io.ReadFull(s, b); err != nil || readErr != nil ||
				string(b) != "hello" {
				t.Errorf("%q, %v, %v", b, err, readErr)
			}
		})
	}
}

// TestTLSWithoutName: an entry with nosni: admits TLS without a name to its own port, and no other
// name.
func TestTLSWithoutName(t *testing.T) {
	for name, right := range map[string]bool{
		"": true, "api.example.org": true, "other.example.org": false,
	} {
		w := newWorld(t)
		server, plain := listenTCP(t, tlsEcho(t)), listenTCP(t, tlsEcho(t))
		w.dns.set("api.example.org", server.Addr().String())
		n := w.open(one, fmt.Sprintf("nosni:api.example.org:%d", server.Port()),
			fmt.Sprintf("api.example.org:%d", plain.Port()), server.String(), plain.String())
		err := tls.Client(w.dial(n, w.named(n, "api.example.org", server.Port())),
			tlsConfig(name)).Handshake()
		if right && err != nil || !right && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%q: %v", name, err)
		}
		err = tls.Client(w.dial(n, w.named(n, "api.example.org", plain.Port())),
			tlsConfig("")).Handshake()
		expect.Is(t, err, unix.ECONNRESET, "without a name where it is wanted")
	}
}

// TestTLSByAddress: by address TLS has any name.
func TestTLSByAddress(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, tlsEcho(t))
	n := w.open(one, server.String())
	s := tls.Client(w.dial(n, server), tlsConfig("whatever.example"))
	expect.NoError(t, s.Handshake())
}

// slowly writes one byte at a time.
type slowly struct{ *net.TCPConn }

func (s slowly) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := s.TCPConn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func TestTLSByteByByte(t *testing.T) {
	w := newWorld(t)
	c := w.byName("api.example.org", listenTCP(t, tlsEcho(t)))
	s := tls.Client(slowly{c}, tlsConfig("api.example.org"))
	expect.NoError(t, s.Handshake())
	d := w.byName("api.example.org", listenTCP(t, tlsEcho(t)))
	expect.True(t, tls.Client(slowly{d}, tlsConfig("other.example.org")).Handshake() != nil, "it passes")
}

// clientHello is the record that a client sends first.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { _ = tls.Client(a, tlsConfig(name)).Handshake() }()
	buf := make([]byte, 16<<10)
	n := must.Get(b.Read(buf))(t)
	return buf[:n]
}

// records divides a handshake message into records of n bytes.
func records(hello []byte, n int) (out []byte) {
	for b := hello[5:]; len(b) > 0; {
		k := min(n, len(b))
		out = append(out, 0x16, 3, 1, byte(k>>8), byte(k))
		out, b = append(out, b[:k]...), b[k:]
	}
	return out
}

// TestTLSInManyRecords: a name that is spread over records is read.
func TestTLSInManyRecords(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	for name, right := range map[string]bool{"api.example.org": true, "other.example.org": false} {
		c := w.byName("api.example.org", server)
		hello := records(clientHello(t, name), 7)
		if !right {
			_, _ = c.Write(hello) // it may be reset while it writes
			wantReset(t, c)
			continue
		}
		wantEcho(t, c, string(hello))
	}
}

// greased is a ClientHello with the values of RFC 8701 in its lists, and an extension of them at
// either end, as browsers send it.
func greased(hello []byte) []byte {
	b := hello[9:]       // behind the headers of the record and of the message
	at := 34             // version and random
	at += 1 + int(b[at]) // session
	size := func(i int) int { return int(b[i])<<8 | int(b[i+1]) }
	put := func(out []byte, i, more int) []byte {
		n := size(i) + more
		return append(out, byte(n>>8), byte(n))
	}
	out := append([]byte{}, b[:at]...)
	out = append(put(out, at, 2), 0x0a, 0x0a) // a cipher
	ciphers := at + 2
	at = ciphers + size(at)
	out = append(out, b[ciphers:at]...)
	methods := at
	at += 1 + int(b[at])
	out = append(out, b[methods:at]...)
	out = append(put(out, at, 9), 0x1a, 0x1a, 0, 0)
	out = append(append(out, b[at+2:]...), 0xda, 0xda, 0, 1, 0)
	n := len(out)
	head := []byte{0x16, 3, 1, byte((n + 4) >> 8), byte(n + 4), 1, 0, byte(n >> 8), byte(n)}
	return append(head, out...)
}

// TestTLSGrease: a ClientHello with values that nobody knows is read.
func TestTLSGrease(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	right := greased(clientHello(t, "api.example.org"))
	wantEcho(t, w.byName("api.example.org", server), string(right))
	c := w.byName("api.example.org", server)
	_, _ = c.Write(greased(clientHello(t, "other.example.org")))
	wantReset(t, c)
}

// TestTLSBytesAreUnchanged: the server gets what the client sent, and what came along with it.
func TestTLSBytesAreUnchanged(t *testing.T) {
	w := newWorld(t)
	c := w.byName("api.example.org", listenTCP(t, echo))
	wantEcho(t, c, string(clientHello(t, "api.example.org"))+strings.Repeat("more", 100))
	wantEcho(t, c, "and more")
}

func TestTLSUnreadable(t *testing.T) {
	hello := clientHello(t, "api.example.org")
	broken := bytes.Clone(hello)
	copy(broken[5:], []byte{2}) // a ServerHello
	for name, b := range map[string][]byte{
		"other message": broken,
		"noise":         append([]byte{0x16, 3, 1, 0, 200}, make([]byte, 200)...),
		"empty records": bytes.Repeat([]byte{0x16, 3, 1, 0, 0}, 40000),
		"endless": append(append([]byte{0x16, 3, 1, 0x40, 0}, 1, 0xff, 0xff, 0xff),
			make([]byte, 1<<20)...),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.byName("api.example.org", listenTCP(t, echo))
			_, _ = c.Write(b) // it may be reset while it writes
			wantReset(t, c)
			w.event(Refused, "ClientHello")
		})
	}
}

// TestTLSHalf: a ClientHello that ends before it is whole passes to nobody.
func TestTLSHalf(t *testing.T) {
	w := newWorld(t)
	c := w.byName("api.example.org", listenTCP(t, echo))
	hello := clientHello(t, "api.example.org")
	must.Get(c.Write(hello[:len(hello)/2]))(t)
	must.Do(t, c.CloseWrite())
	wantReset(t, c)
}

func TestProtocolOf(t *testing.T) {
	for b, want := range map[string]protocol{
		"": undecided, "\x16": undecided, "G": undecided, "GET": undecided,
		strings.Repeat("A", 30): undecided, "get k": undecided, "SSH-2.0-x y": undecided,
		"\x16\x03": tlsRecord, "\x80": undecided, "\x80\x2e": undecided, "\x80\x2e\x01": oldHello,
		"\xff\xff\x01\x03\x01": oldHello, "\x80\x00\x00": anything,
		"\x16\x02": anything, "\x00": anything, "PING\r\n": anything, "*1\r\n": anything,
		"get k\r\n": anything, "SSH-2.0-x y\r\n": anything, "x=1 ": anything, "a\x00": anything,
		"0\x0c\x02\x01": anything, "nick x\r\nGET / HTTP/1.1\r\n": anything,
		"GET ": web1, "CONNECT ": web1, "X /": web1, strings.Repeat("A", 30) + " /": web1,
		"PRI *": web2, "PRI x\n": anything, "NICK bob": undecided, "NICK bob\r\n": anything,
		"SET k 1\r\n": anything, "EHLO me\r\n": anything, "CPU 1 1700\n": anything,
		"OPTIONS rtsp://h/ RTSP/1.0\r\n": anything, "REGISTER sip:h SIP/2.0\r\n": anything,
		"OPTIONS * RTSP/1.0\r\n": anything, "CONNECT\n": anything, "SET k http:x\r\n": anything,
		"POST\t /\x01": web1, "POST HttpS:": web1, "POST http": undecided, "FOO *\x01": undecided,
		"FOO *\x01 HTTP/1.1\n": web1, "X k HTTP/1.1": web1, "foo *\x01": anything,
		"get /x HTTP/1.1\r": web1, "SSH-2.0-x / HTTP/1.1\r\n": web1, "M-SEARCH * http/1.1": web1,
		"GET\t/\r\n": web1, " GET / HTTP/1.1": web1, " GET /": web1, "GET\x1c/ ": web1,
		"\tx / HTTP/1.0": web1, "x\t/\tHTTP/1.1": web1,
	} {
		expect.Equal(t, protocolOf([]byte(b)), want, "%q", b)
	}
}

// TestServerFirst: a client may wait for the server's first bytes, and then send what looks like a
// request.
func TestServerFirst(t *testing.T) {
	w := newWorld(t)
	c := w.byName("mail.example.org", listenTCP(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 mail\r\n")
		echo(c)
	}))
	b := make([]byte, 10)
	_, err := io.ReadFull(c, b)
	must.True(t, err == nil && string(b) == "220 mail\r\n", "%q, %v", b, err)
	wantEcho(t, c, "EHLO client.example\r\n")
}

// TestClientFirst: what is no TLS and no HTTP passes, also if it is short.
func TestClientFirst(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"x\n", "\x00\x00\x00\x08", "SSH-2.0-Open SSH\r\n", "*1\r\n",
		"\r\n", "get k\r\n", "NICK bob\r\n", "SET k 1\r\n", "AUTH pw\r\n", "EHLO me\r\n",
		"OPTIONS rtsp://h/ RTSP/1.0\r\n\r\n", "REGISTER sip:h SIP/2.0\r\n\r\n", "CPU 1 1700\n"} {
		c := w.byName("api.example.org", listenTCP(t, echo))
		wantEcho(t, c, text)
		c.Close()
		e := w.event(Allowed, "")
		expect.True(t, e.Host == "api.example.org" && e.Out == int64(len(text)), "%+v", e)
	}
}

// TestWebEndless: a line without an end passes to nobody.
func TestWebEndless(t *testing.T) {
	w := newWorld(t)
	c := w.byName("api.example.org", listenTCP(t, echo))
	_, _ = io.WriteString(c, strings.Repeat("a", 4*maxLine)) // it may be reset while it writes
	wantReset(t, c)
	w.event(Refused, "without an end")
}

// lenient are requests for another host as only lenient servers take them.
var lenient = []string{
	"GET  /  HTTP/1.1", "get / http/1.1", "\r\n\nGET / HTTP/1.1", " GET / HTTP/1.1", "GET\t/\tHTTP/1.1",
	"GET\x0b/\x0cHTTP/1.1", "GET /", "GET k", "GET http://other.example/", "POST http://other.example/",
	"POST /", "POST / FOO/1.0", "POST http://other.example/ RTSP/1.0", "PROPFIND / X", "X!1 / HTTP/1.1",
	"POST /\x01 HTTP/1.1", "FOO *\x01 HTTP/1.1", "FOO k HTTP/1.1", "CONNECT other.example:443",
	"connect other.example:443 HTTP/1.1", "OPTIONS / RTSP/1.0", "M-SEARCH / HTTP/1.1",
	"SSH-2.0-x / HTTP/1.1", strings.Repeat("A", 30) + " / HTTP/1.1",
}

// TestLenient: they pass to nobody, in whatever pieces they come.
func TestLenient(t *testing.T) {
	for _, line := range lenient {
		for _, size := range []int{1, 7, 1000} {
			w := newWorld(t)
			got := make(chan string, 1)
			c := w.byName("api.example.org", listenTCP(t, func(c *net.TCPConn) {
				defer c.Close()
				b, _ := io.ReadAll(c)
				got <- strings.TrimSpace(string(b)) // leading line ends pass
			}))
			request := []byte(line + "\r\nHost: other.example\r\n\r\n")
			for piece := range slices.Chunk(request, size) {
				_, _ = c.Write(piece) // it may be refused before its end
			}
			_ = c.CloseWrite()
			expect.Equal(t, <-got, "", "%q in pieces of %d came as", line, size)
		}
	}
}

// TestClientEndsUndecided: bytes that are not enough to tell pass when there are no more.
func TestClientEndsUndecided(t *testing.T) {
	w := newWorld(t)
	c := w.byName("api.example.org", listenTCP(t, echo))
	must.Get(io.WriteString(c, "QUIT"))(t)
	must.Do(t, c.CloseWrite())
	b, err := io.ReadAll(c)
	expect.True(t, string(b) == "QUIT" && err == nil, "%q, %v", b, err)
}

// FuzzServerName: crypto/tls reads anything without harm, and what it reads is kept.
func FuzzServerName(f *testing.F) {
	f.Add(clientHello(f, "api.example.org"))
	f.Add(records(clientHello(f, "api.example.org"), 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &recorder{Conn: ended{}, begin: b}
		name, err := serverName(r)
		if err != nil && name != "" || !bytes.HasPrefix(b, r.read) {
			t.Errorf("%q, %v: %q of %q", name, err, r.read, b)
		}
	})
}

// ended is a connection with nothing more to read.
type ended struct{ net.Conn }

func (ended) Read([]byte) (int, error) { return 0, errors.New("ended") }

// TestOtherResolver: a connection to another DNS server, which the chat's own resolver answers, is
// told; one to that resolver is not.
func TestOtherResolver(t *testing.T) {
	w := newWorld(t)
	n := w.open(one)
	w.dial(n, netip.MustParseAddrPort("127.0.0.1:53")).Close()
	w.dial(n, netip.MustParseAddrPort("8.8.8.8:53")).Close()
	e := w.event(Refused, "own resolver")
	expect.True(t, e.Addr.String() == "8.8.8.8:53", "%+v", e)
}

// switches answers each request with 101 and the protocol, and never closes its side.
func switches(t *testing.T, protocol string) *origin {
	t.Helper()
	held := make(chan struct{})
	o := newOrigin(t, func(c *net.TCPConn, _ *http.Request, _ *bufio.Reader) {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: %s\r\n\r\n", protocol)
		<-held
	})
	t.Cleanup(func() { close(held) })
	return o
}

// wantOthers wants another chat's connections to be carried, and calls of chatd-root about the
// chat one to be answered.
func (w *world) wantOthers() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), guard)
	defer cancel()
	must.Do(w.t, expect.Err(w.root.Call(ctx, uplink.Call{Verb: uplink.Close, Chat: one})))
	server := listenTCP(w.t, echo)
	wantEcho(w.t, w.dial(w.open(two, server.String()), server), "x")
	w.root = w.newRoot() // replaces the first, which has nothing under way
	wantEcho(w.t, w.dial(w.open(two, server.String()), server), "y")
}

// TestSwitchUnasked: a server switches to another protocol than the client asked for, or where it
// asked for none. Its connection ends with the request, and the chat's end waits for nothing.
func TestSwitchUnasked(t *testing.T) {
	for _, asked := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket, foo\r\n"} {
		w := newWorld(t)
		o := switches(t, "bar")
		c := w.byName("api.example.org", o.addr)
		answer(t, send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n"+asked+"\r\n"), 502)
		w.wantOthers()
	}
}

// TestSwitchOneOfSeveral: a server takes websocket out of a list, as gorilla/websocket does.
func TestSwitchOneOfSeveral(t *testing.T) {
	w := newWorld(t)
	o := switches(t, "websocket")
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket, foo\r\n\r\n")
	a, err := http.ReadResponse(b, nil)
	expect.True(t, err == nil && a.StatusCode == 101, "%+v, %v", a, err)
	w.wantOthers()
}

// TestSwitchUnaskedBySecret is TestSwitchUnasked at the host of a secret.
func TestSwitchUnaskedBySecret(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		held := make(chan struct{})
		w := newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			c, b, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return // over HTTP/2 no server can
			}
			defer c.Close()
			_, _ = b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
				"Upgrade: foo\r\n\r\n")
			_ = b.Flush()
			<-held
		})
		t.Cleanup(func() { close(held) })
		client := w.client(http2)
		for range 2 * maxServers { // none keeps a place of the session
			w.do(client, w.request("GET", "/", nil))
		}
		w.wantOthers()
	})
}

// TestClientLeavesSwitched: a client leaves a WebSocket whose server does not close. The server's
// connection ends, though the chat stays.
func TestClientLeavesSwitched(t *testing.T) {
	defer func(was time.Duration) { switchedGrace = was }(switchedGrace)
	switchedGrace = 10 * time.Millisecond
	ended := make(chan error, 1)
	w := newWorld(t)
	o := newOrigin(t, func(c *net.TCPConn, r *http.Request, b *bufio.Reader) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: websocket\r\n\r\n")
		_, err := io.Copy(io.Discard, b) // the end of the client's side
		for err == nil {
			_, err = c.Write([]byte("still here"))
			time.Sleep(time.Millisecond)
		}
		ended <- err
	})
	c := w.byName("api.example.org", o.addr)
	b := send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	a, err := http.ReadResponse(b, nil)
	must.True(t, err == nil && a.StatusCode == 101, "%+v, %v", a, err)
	go func() { _, _ = io.Copy(io.Discard, b) }() // it reads, and so resets nothing
	must.Do(t, c.CloseWrite())
	select {
	case <-ended:
	case <-time.After(guard):
		t.Error("the server's connection goes on")
	}
	w.event(Allowed, "")
}

// TestCloseIsBounded: a connection that does not end delays neither the answer about its chat for
// long, nor other chats, nor the end of the server.
func TestCloseIsBounded(t *testing.T) {
	defer func(was time.Duration) { closeTimeout = was }(closeTimeout)
	closeTimeout = 50 * time.Millisecond
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	stuck := make(chan struct{})
	n.all.Go(func() { <-stuck })
	t.Cleanup(func() { close(stuck) })
	_, _, err := w.root.Call(t.Context(), uplink.Call{Verb: uplink.Close, Chat: one})
	expect.True(t, err != nil, "a chat with something under way is called closed")
	w.wantOthers()
	again := w.open(one, server.String())
	again.all.Go(func() { <-stuck })
}
