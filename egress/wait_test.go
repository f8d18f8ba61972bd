package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if a, err := http.ReadResponse(b, nil); err != nil || a.StatusCode != 101 {
		t.Errorf("%+v, %v", a, err)
	}
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
	if a, err := http.ReadResponse(b, nil); err != nil || a.StatusCode != 101 {
		t.Fatalf("%+v, %v", a, err)
	}
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
	if _, _, err := w.root.Call(t.Context(), uplink.Call{Verb: uplink.Close, Chat: one}); err == nil {
		t.Error("a chat with something under way is called closed")
	}
	w.wantOthers()
	again := w.open(one, server.String())
	again.all.Go(func() { <-stuck })
}
