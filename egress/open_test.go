package egress

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if other := open(two); other.Count != 0 || other.Connections == nil {
		t.Errorf("%+v", other)
	}
	_ = c.Close()
	w.event(Refused, "")
	w.event(Allowed, "")
	if got := open(one); got.Count != 1 || got.Connections[0].To() != server.String() {
		t.Errorf("%+v", got)
	}
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
	if len(w.s.tally.carried)+len(w.s.tally.unheard) != 0 {
		t.Errorf("%v and %v are left", w.s.tally.carried, w.s.tally.unheard)
	}
}
