package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestListedAddress(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	c := w.dial(n, server)
	wantEcho(t, c, "GET of anything")
	c.Close()
	e := w.event(Allowed, "")
	expect.True(t, e.Chat == one && e.Addr == server && e.Out == 15 && e.In == 15 && e.Host == "",
		"%+v", e)
}

func TestUnlistedAddress(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, func(c *net.TCPConn) { t.Error("it was connected to"); c.Close() })
	n := w.open(one, netip.AddrPortFrom(server.Addr(), server.Port()+1).String(),
		"udp:"+server.String(),
		"example.org:1-65535")
	wantReset(t, w.dial(n, server))
	w.event(Refused, "does not list "+server.String())
}

func TestUnlistedName(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "api.example.org:443", "udp:api.example.org:80", "0.0.0.0/0:1-65535")
	wantReset(t, w.dial(n, w.named(n, "api.example.org", 80)))
	w.event(Refused, "does not list api.example.org:80")
	wantReset(t, w.dial(n, w.named(n, "other.example.org", 443)))
	w.event(Refused, "does not list other.example.org:443")
	wantReset(t, w.dial(n, netip.MustParseAddrPort("198.18.77.77:443")))
	w.event(Refused, "no name has the address 198.18.77.77")
}

// TestRebinding: a name opens no address of the host's own networks, unless an entry has it.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	for _, addr := range []string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "198.18.0.9",
		"fd00::1",
		"::1", "::ffff:127.0.0.1"} {
		w.dns.set("api.example.org", addr)
		n := w.open(one, fmt.Sprintf("api.example.org:%d", server.Port()), "0.0.0.0/0:1-65535",
			"udp:127.0.0.1:1-65535", "127.0.0.1:1")
		wantReset(t, w.dial(n, w.named(n, "api.example.org", server.Port())))
		e := <-w.events
		expect.True(t, e.Verdict != Allowed, "%s: %+v", addr, e)
	}
	w.root.mu.Lock()
	defer w.root.mu.Unlock()
	for _, c := range w.root.sockets {
		expect.True(t, c.Verb != uplink.Socket, "it asked for a socket: %+v", c)
	}
}

func TestFailedConnect(t *testing.T) {
	w := newWorld(t)
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	server := addrOf(l.Addr())
	l.Close() // nobody listens
	n := w.open(one, server.String())
	wantReset(t, w.dial(n, server))
	w.event(Failed, "refused")
}

// TestNextAddress: an address that does not answer is passed over.
func TestNextAddress(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	host := "api.example.org"
	w.dns.set(host, "127.0.0.77", "127.0.0.1")
	n := w.open(one, fmt.Sprintf("%s:%d", host, server.Port()), fmt.Sprintf("127.0.0.0/24:%d",
		server.Port()))
	wantEcho(t, w.dial(n, w.named(n, host, server.Port())), "\x00")
}

func TestInterleave(t *testing.T) {
	var addrs []netip.Addr
	for _, s := range strings.Fields("1.0.0.1 1.0.0.2 1.0.0.3 1.0.0.4 1.0.0.5 2000::1 2000::2") {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	var got []string
	for _, a := range interleave(addrs, 1) {
		got = append(got, a.Addr().String())
	}
	if want := strings.Fields("2000::1 1.0.0.1 2000::2 1.0.0.2 1.0.0.3 1.0.0.4"); !slices.Equal(got, want) {
		t.Error(got, want)
	}
	expect.True(t, len(interleave(addrs[5:], 1)) == 2 && len(interleave(nil, 1)) == 0, "too many")
}

// TestAccepted: on loopback, and at the listener's own address, there is nothing to connect to.
func TestAccepted(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "127.0.0.0/8:1-65535")
	dialReset(t, n)
}

// dialReset connects to the listener of a chat, and wants a reset, perhaps before it stands.
func dialReset(t *testing.T, n *network) {
	t.Helper()
	c, err := net.DialTCP("tcp4", nil, n.tcp.Addr().(*net.TCPAddr))
	if errors.Is(err, unix.ECONNRESET) {
		return
	}
	must.Do(t, err)
	defer c.Close()
	wantReset(t, c)
}

func TestAsksNames(t *testing.T) {
	none, all := []chat.Allow(nil), list(t, "0.0.0.0/0:53", "udp:127.0.0.1:53", "[2000::/3]:53")
	for _, c := range []struct {
		list []chat.Allow
		udp  bool
		dst  string
		want bool
	}{
		{none, false, "8.8.8.8:53", true},
		{none, true, "8.8.8.8:53", true},
		{none, true, "8.8.8.8:54", false},
		{none, true, "[2000::1]:53", true},
		{all, false, "8.8.8.8:53", false},
		{all, true, "8.8.8.8:53", true},
		{all, false, "10.0.0.1:53", true}, // a wide entry does not open it
		{all, false, "[2000::1]:53", false},
		{all, true, "127.0.0.1:53", true}, // the chat's own
	} {
		expect.Equal(t, asksNames(c.list, c.udp, netip.MustParseAddrPort(c.dst)), c.want, "%+v", c)
	}
}

func TestBound(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	var all []*net.TCPConn
	for range maxConnections {
		all = append(all, w.dial(n, server))
	}
	for _, c := range all {
		wantEcho(t, c, "x")
	}
	wantReset(t, w.dial(n, server))
	w.event(Refused, "too many")
	m := w.open(two, server.String()) // another chat has its own share
	wantEcho(t, w.dial(m, server), "x")
	all[0].Close()
	w.event(Allowed, "")
	wantEcho(t, w.dial(n, server), "x")
}

// TestBoundOfAll: no chat takes the descriptors of the others.
func TestBoundOfAll(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	w.s.slots.left = 3
	a, b := w.dial(n, server), w.dial(n, server)
	wantEcho(t, a, "x")
	wantEcho(t, b, "x")
	wantReset(t, w.dial(n, server)) // what is left is for those that have less
	w.event(Refused, "too many")
	other := w.open(two, server.String())
	wantEcho(t, w.dial(other, server), "x")
	wantReset(t, w.dial(other, server))
	w.event(Refused, "too many")
	a.Close()
	w.event(Allowed, "")
	b.Close()
	w.event(Allowed, "")
	wantEcho(t, w.dial(n, server), "x")
}

// TestRate: who connects without end waits, and costs chatd-root no socket meanwhile.
func TestRate(t *testing.T) {
	w := newWorld(t)
	w.s.mu.Lock()
	w.s.fresh = func() *quota.Allowance { return quota.NewAllowance(2, time.Hour, time.Now) }
	w.s.mu.Unlock()
	n := w.open(one, "127.0.0.0/8:1-65535", "udp:127.0.0.1:9")
	dialReset(t, n)
	dialReset(t, n)
	last := must.Get(net.DialTCP("tcp4", nil, n.tcp.Addr().(*net.TCPAddr)))(t)
	defer last.Close()
	must.Do(t, last.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	expect.Is(t, expect.Err(last.Read(make([]byte, 1))), os.ErrDeadlineExceeded, "the third is accepted")
	to := netip.MustParseAddrPort("192.0.2.9:9")
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range 3 {
		_, err := n.begin(flowKey{netip.AddrPortFrom(to.Addr(), uint16(1000+i)), to})
		expect.True(t, isRefusal(err) == (i == 2), "flow %d: %v", i, err)
	}
}

// TestResolve: of a listed name it is told why it leads nowhere, and nothing is connected.
func TestResolve(t *testing.T) {
	w := newWorld(t)
	w.dns.set("good.example.org", "93.184.216.34")
	w.dns.set("private.example.org", "10.0.0.1")
	w.open(one, "*.example.org:443", "udp:time.example.org:123")
	for _, c := range []struct {
		id   chat.ID
		host string
		port uint16
		want string
	}{
		{one, "good.example.org", 443, ""},
		{one, "none.example.org", 443, "cannot resolve none.example.org"},
		{one, "private.example.org", 443, "private addresses"},
		{one, "good.example.org", 80, "does not list"},
		{one, "evil.example", 443, "does not list"},
		{one, "", 443, "does not list"},
		{two, "good.example.org", 443, "not open"},
	} {
		_, _, err := w.root.Call(t.Context(), uplink.Call{Verb: uplink.Resolve, Chat: c.id,
			Host: c.host, Port: c.port})
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	w.root.mu.Lock()
	defer w.root.mu.Unlock()
	for _, call := range w.root.sockets {
		expect.True(t, call.Verb == uplink.Upstream, "%+v was asked for", call)
	}
}

// TestOwnHosts: what a chat writes into its /etc/hosts leads it to what its list opens: the real
// address of a listed name is not listed itself, and a listed name's address stands for that name.
func TestOwnHosts(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	w.dns.set("api.example.org", server.Addr().String())
	name := fmt.Sprintf("api.example.org:%d", server.Port())
	wantReset(t, w.dial(w.open(one, name), server)) // its real address
	w.event(Refused, "does not list")
	n := w.open(one, name, server.String())
	c := w.dial(n, w.named(n, "api.example.org", server.Port()))
	_, _ = c.Write(clientHello(t, "other.example.org")) // its made-up one under another name
	wantReset(t, c)
	w.event(Refused, "other.example.org")
}
