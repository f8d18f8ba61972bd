package egress

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// carriedTo is a connection by address to a server of the test.
func carriedTo(t testing.TB, serve func(*net.TCPConn)) (*world, *net.TCPConn) {
	t.Helper()
	w := newWorld(t)
	server := listenTCP(t, serve)
	return w, w.dial(w.open(one, server.String()), server)
}

// TestHalfClose: each side may end while the other goes on.
func TestHalfClose(t *testing.T) {
	w, c := carriedTo(t, func(c *net.TCPConn) {
		defer c.Close()
		b, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(append([]byte("all of "), b...))
		}
	})
	_, err := io.WriteString(c, "this")
	if err = errors.Join(err, c.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	expect.True(t, string(b) == "all of this" && err == nil, "%q, %v", b, err)
	w.event(Allowed, "")
}

func TestServerHalfClose(t *testing.T) {
	got := make(chan string, 1)
	w, c := carriedTo(t, func(c *net.TCPConn) {
		defer c.Close()
		_, _ = io.WriteString(c, "over")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	b, err := io.ReadAll(c)
	expect.True(t, string(b) == "over" && err == nil, "%q, %v", b, err)
	must.Get(io.WriteString(c, "still here"))(t)
	c.Close()
	expect.Equal(t, <-got, "still here", "")
	w.event(Allowed, "")
}

// TestReset: a reset of either side reaches the other as one.
func TestResetByServer(t *testing.T) {
	_, c := carriedTo(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		reset(c)
	})
	must.Get(io.WriteString(c, "x"))(t)
	wantReset(t, c)
}

func TestResetByClient(t *testing.T) {
	ended := make(chan error, 1)
	w, c := carriedTo(t, func(c *net.TCPConn) {
		defer c.Close()
		_, err := io.Copy(c, c)
		ended <- err
	})
	wantEcho(t, c, "x")
	reset(c)
	expect.Is(t, <-ended, unix.ECONNRESET, "")
	w.event(Allowed, "reset")
}

// TestResetWhileNamed: a client that resets before it has said what it speaks.
func TestResetWhileNamed(t *testing.T) {
	w := newWorld(t)
	ended := make(chan error, 1)
	server := listenTCP(t, func(c *net.TCPConn) {
		defer c.Close()
		_, err := io.WriteString(c, "hello")
		if err == nil {
			_, err = io.ReadAll(c)
		}
		ended <- err
	})
	c := w.byName("api.example.org", server)
	must.Get(io.ReadFull(c, make([]byte, 5)))(t)
	reset(c)
	expect.Is(t, <-ended, unix.ECONNRESET, "")
}

// TestMuch: bytes arrive whole and in order both ways at the same time, also from a slow reader.
func TestMuch(t *testing.T) {
	w, c := carriedTo(t, echo)
	want := make([]byte, 32<<20)
	must.Get(rand.Read(want))(t)
	go func() {
		for b := want; len(b) > 0; {
			n := min(len(b), 100_001)
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	expect.True(t, err == nil && bytes.Equal(got, want), "%d bytes, %v", len(got), err)
	e := w.event(Allowed, "")
	expect.True(t, e.Out == int64(len(want)) && e.In == e.Out, "%+v", e)
}

// TestIdleBurst: what comes after a pause longer than a burst is passed on.
func TestAfterBurst(t *testing.T) {
	_, c := carriedTo(t, echo)
	wantEcho(t, c, "one")
	time.Sleep(burst + burst/4)
	wantEcho(t, c, "two")
}

// TestIdle: the sweep ends what was idle for too long, and nothing else.
func TestIdle(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	c := w.dial(n, server)
	wantEcho(t, c, "x")
	w.s.sweep(time.Now().Add(idleTCP - time.Minute))
	wantEcho(t, c, "x")
	w.s.sweep(time.Now().Add(idleTCP + time.Minute))
	wantReset(t, c)
	w.event(Allowed, "idle")
}
