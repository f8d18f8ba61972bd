package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestChange: what the list no longer opens ends before the answer, and the rest goes on.
func TestChange(t *testing.T) {
	w := newWorld(t)
	a, b, named := listenTCP(t, echo), listenTCP(t, echo), listenTCP(t, echo)
	w.dns.set("api.example.org", "127.0.0.1")
	name := fmt.Sprintf("api.example.org:%d", named.Port())
	n := w.open(one, a.String(), b.String(), name, named.String())
	ca, cb, cn := w.dial(n, a), w.dial(n, b), w.dial(n, w.named(n, "api.example.org", named.Port()))
	for _, c := range []*net.TCPConn{ca, cb, cn} {
		wantEcho(t, c, "x\n") // by name it is a line that tells what is no request
	}
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: list(t, b.String(), name,
		named.String())})
	w.event(Allowed, "no longer") // it has been told already
	k := n.count()
	expect.True(t, k == 2, "%d connections", k)
	wantReset(t, ca)
	wantEcho(t, cb, "x")
	wantEcho(t, cn, "x")
	wantReset(t, w.dial(n, a))
	w.event(Refused, "does not list")
	// The name stays, and its private address does not.
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: list(t, b.String(), name)})
	wantReset(t, cn)
	wantEcho(t, cb, "x")
}

// TestChangeChecksAll: of several connections of one session each is checked until it is closed.
func TestChangeChecksAll(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "api.example.org:80", "127.0.0.1:80", "127.0.0.2:80")
	dst := w.named(n, "api.example.org", 80)
	n.mu.Lock()
	c := n.enter(dst, false)
	n.mu.Unlock()
	must.Get(c.decide())(t)
	first, last := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("127.0.0.2:80")
	must.Do(t, errors.Join(c.reached(first), c.reached(last)))
	listed := func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.list = list(t, "api.example.org:80", "127.0.0.2:80")
		return c.stillListed()
	}
	expect.True(t, !listed(), "the first connection is passed over")
	c.left(first)
	expect.True(t, listed(), "a connection that is closed counts")
	c.leave()
}

// TestClose: everything of the chat ends before the answer, and nothing of another.
func TestClose(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	before := countFDs(t)
	n := w.open(one, server.String())
	m := w.open(two, server.String())
	other := w.dial(m, server)
	wantEcho(t, other, "x")
	var all []*net.TCPConn
	for range 10 {
		c := w.dial(n, server)
		wantEcho(t, c, "x")
		all = append(all, c)
	}
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	k := n.count()
	expect.True(t, k == 0, "%d connections are left", k)
	for _, c := range all {
		wantReset(t, c)
	}
	wantEcho(t, other, "x")
	if c, err := net.Dial("tcp4", n.tcp.Addr().String()); err == nil {
		c.Close()
		t.Error("its listener is still there")
	}
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	w.call(uplink.Call{Verb: uplink.Close, Chat: two})
	other.Close()
	for _, c := range all {
		c.Close()
	}
	wantBack(t, 1<<20, before)
}

// TestOpenAgain: an open chat is closed first.
func TestOpenAgain(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	c := w.dial(w.open(one, server.String()), server)
	wantEcho(t, c, "x")
	n := w.open(one)
	wantReset(t, c)
	wantReset(t, w.dial(n, server))
}

func TestOpenRefuses(t *testing.T) {
	w := newWorld(t)
	for name, choose := range map[string]func(f []*os.File) []*os.File{
		"none":    func([]*os.File) []*os.File { return nil },
		"two":     func(f []*os.File) []*os.File { return f[:2] },
		"swapped": func(f []*os.File) []*os.File { return []*os.File{f[1], f[0], f[2]} },
		"a file":  func(f []*os.File) []*os.File { return []*os.File{f[2], f[1], f[2]} },
	} {
		files := w.files()
		call := uplink.Call{Verb: uplink.Open, Chat: one}
		expect.True(t, expect.Err(w.root.Call(t.Context(), call, choose(files)...)) != nil,
			"%s: it was taken", name)
		expect.NoError(t, uplink.CloseFiles(files))
	}
	expect.True(t, expect.Err(w.root.Call(t.Context(), uplink.Call{Verb: uplink.Change,
		Chat: one})) != nil, "an unknown chat was changed")
	expect.True(t, expect.Err(w.root.Call(t.Context(), uplink.Call{Verb: uplink.Socket,
		Chat: one})) != nil, "it answered its own question")
}

// TestRootReplaced: what is connected goes on, and what waits for chatd-root goes on with the next.
func TestRootReplaced(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	c := w.dial(n, server)
	wantEcho(t, c, "x")
	w.root.end()
	wantEcho(t, c, "while there is none")
	waits := w.dial(n, server)
	must.Get(io.WriteString(waits, "y"))(t)
	next := w.silentRoot()
	answer, _, err := next.Call(t.Context(), uplink.Call{Verb: uplink.Hello,
		Upstreams: []netip.AddrPort{w.dns.addr}})
	if err != nil || !slices.Equal(answer.Chats, []chat.ID{one}) {
		t.Error(answer, err)
	}
	expect.NoError(t, expect.Err(io.ReadFull(waits, make([]byte, 1))))
	// It is replaced while it is there.
	w.root = w.newRoot()
	expect.NoError(t, <-next.ended)
	wantEcho(t, c, "x")
	wantEcho(t, w.dial(n, server), "z")
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	wantReset(t, c)
}

// TestNoRoot: without chatd-root nothing new is connected.
func TestNoRoot(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	w.root.end()
	w.s.root.timeout = time.Millisecond
	wantReset(t, w.dial(n, server))
	w.event(Failed, "cannot ask chatd-root for socket")
}

// TestBeforeHello: a chatd-root that says no hello is asked for nothing, and answered nothing.
func TestBeforeHello(t *testing.T) {
	w := newWorld(t)
	r := w.silentRoot()
	for _, verb := range []uplink.Verb{uplink.Open, uplink.Change, uplink.Close} {
		expect.True(t, expect.Err(r.Call(t.Context(), uplink.Call{Verb: verb, Chat: one})) != nil,
			"%s was answered", verb)
	}
}

// TestOtherPeer: a peer of another uid than chatd-root's is not answered, and replaces nobody.
func TestOtherPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	addr := &net.UnixAddr{Net: "unixpacket", Name: path}
	l := must.Get(net.ListenUnix("unixpacket", addr))(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	o := Options{Listener: l, Root: uint32(os.Getuid()) + 1, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- Serve(ctx, o) }()
	c := must.Get(net.DialUnix("unixpacket", nil, addr))(t)
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error(n, err)
	}
	cancel()
	expect.NoError(t, <-served)
}

// TestListenerFails: an error of the listener ends the server.
func TestListenerFails(t *testing.T) {
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket",
		Name: filepath.Join(t.TempDir(), "s")}))(t)
	l.Close()
	expect.True(t, Serve(t.Context(), Options{Listener: l,
		Log: slog.New(slog.DiscardHandler)}) != nil, "it serves")
}

// TestOpen: what is carried is told while it is, with its name, its age and its bytes so far, and
// what is refused is not.
func TestOpen(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	w.dns.set("api.example.org", server.Addr().String())
	n := w.open(one, fmt.Sprintf("api.example.org:%d", server.Port()), server.String())
	before := time.Now()
	c := w.dial(n, w.named(n, "api.example.org", server.Port()))
	wantEcho(t, c, "hello\n")
	wantEcho(t, w.dial(n, server), "x")
	wantReset(t, w.dial(n, netip.MustParseAddrPort("192.0.2.1:9")))
	open := func(id chat.ID) chat.EgressOpen {
		t.Helper()
		a := w.call(uplink.Call{Verb: uplink.Connections, Chat: id})
		must.True(t, a.Open != nil && a.Open.Validate() == nil, "%+v", a)
		return *a.Open
	}
	var got chat.EgressOpen
	for end := time.Now().Add(guard); ; time.Sleep(5 * time.Millisecond) {
		// Bytes are counted each second (relay.go).
		got = open(one)
		must.True(t, len(got.Connections) == 2 && got.Count == 2, "%+v", got)
		if got.Connections[0].Received == 6 && got.Connections[1].Sent == 1 {
			break
		}
		must.True(t, !time.Now().After(end), "%+v", got)
	}
	first, second := got.Connections[0], got.Connections[1]
	if first.To() != fmt.Sprintf("api.example.org:%d", server.Port()) || first.Sent != 6 ||
		first.Received != 6 || first.Since.Before(before) || first.Since.After(time.Now()) {
		t.Errorf("%+v", first)
	}
	expect.True(t, second.To() == server.String() && second.Sent == 1, "%+v", second)
	other := open(two)
	expect.True(t, other.Count == 0 && other.Connections != nil, "%+v", other)
	_ = c.Close()
	w.event(Refused, "")
	w.event(Allowed, "")
	got = open(one)
	expect.True(t, got.Count == 1 && got.Connections[0].To() == server.String(), "%+v", got)
}

// TestCarriedIsReported: chatd-root hears how many connections there are when that changes, and
// another chatd-root hears it too.
func TestCarriedIsReported(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	heard := func(want ...int) {
		t.Helper()
		w.s.report(t.Context(), "")
		w.s.report(t.Context(), "") // nothing new
		w.root.mu.Lock()
		defer w.root.mu.Unlock()
		var got []int
		for _, c := range w.root.carried {
			if c.Chat == one {
				got = append(got, c.Count)
			}
		}
		// The server's own reports may come between.
		expect.True(t, len(got) != 0 && got[len(got)-1] == want[len(want)-1] && len(got) <= len(want),
			"heard %v, want %v", got, want)
		w.root.carried = nil
	}
	c := w.dial(n, server)
	wantEcho(t, c, "x")
	heard(1)
	wantEcho(t, w.dial(n, server), "x")
	heard(2)
	w.root.end()
	w.root = w.newRoot()
	heard(2)
	_ = c.Close()
	w.event(Allowed, "")
	heard(1)
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	heard(0)
	w.s.tally.mu.Lock()
	defer w.s.tally.mu.Unlock()
	expect.True(t, len(w.s.tally.carried)+len(w.s.tally.unheard) == 0,
		"%v and %v are left", w.s.tally.carried, w.s.tally.unheard)
}

// TestSilentSigner: while chatd-root signs nothing, certificates that are kept are shown, those that
// wait for theirs end with their connections, and one that has no such end gives up.
func TestSilentSigner(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	l := &w.s.terminator.leaves
	must.Get(l.get(t.Context(), w.n, apiHost))(t)
	silent := make(chan struct{})
	t.Cleanup(func() { close(silent) })
	w.root.mu.Lock()
	w.root.silent = silent
	w.root.mu.Unlock()
	w.s.root.timeout = time.Minute
	ctx, leave := context.WithCancelCause(t.Context())
	left := errors.New("the client left")
	ended := make(chan error, 2)
	for range 2 { // one asks, one waits for its turn
		go func() {
			_, err := l.get(ctx, w.n, "new.example.org")
			ended <- err
		}()
	}
	waitUntil(t, func() bool { return len(l.making) == 1 })
	expect.Is(t, expect.Err(l.get(t.Context(), w.n, apiHost)), nil, "one that is kept")
	select {
	case err := <-ended:
		t.Errorf("one that waits: %v", err)
	default:
	}
	leave(left)
	for range 2 {
		expect.True(t, <-ended != nil, "a certificate that nobody signed")
	}
	w.s.root.timeout = 50 * time.Millisecond
	expect.Is(t, expect.Err(l.get(t.Context(), w.n, "new.example.org")), context.DeadlineExceeded,
		"one that waits on")
}
