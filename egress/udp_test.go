package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// listenUDP is a socket of the test.
func listenUDP(t testing.TB) *net.UDPConn {
	t.Helper()
	c := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	_ = c.SetDeadline(time.Now().Add(guard))
	t.Cleanup(func() { c.Close() })
	return c
}

// echoUDP is a server that sends back what it gets.
func echoUDP(t testing.TB) netip.AddrPort {
	t.Helper()
	c := listenUDP(t)
	var done sync.WaitGroup
	done.Go(func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	})
	t.Cleanup(func() { c.Close(); done.Wait() })
	return udpAddr(c.LocalAddr())
}

// comes reads a datagram, and says from where.
func comes(t *testing.T, c *net.UDPConn, want string) netip.AddrPort {
	t.Helper()
	b := make([]byte, maxDatagram)
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil || string(b[:n]) != want {
		t.Fatalf("%q, %v, want %q", b[:n], err, want)
	}
	return plain(from)
}

// TestDatagramsSamePort: where a program has the port for itself answers come from that port all
// the same, of any size, and its further datagrams are of the same flow.
func TestDatagramsSamePort(t *testing.T) {
	needsRoot(t)
	w := newWorld(t)
	w.root.raw = true
	server, ours := echoUDP(t), listenUDP(t)
	src := udpAddr(ours.LocalAddr())
	n := w.open(one, "udp:"+server.String())
	var sent int64
	for _, text := range []string{"first", "", "again", strings.Repeat("x", 60000)} {
		n.pass(flowKey{src, server}, []byte(text))
		expect.Equal(t, comes(t, ours, text), server, "from")
		sent += int64(len(text))
	}
	if n.count() != 1 {
		t.Errorf("%d flows", n.count())
	}
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	e := w.event(Allowed, "has ended")
	expect.True(t, e.Out == sent && e.In == sent, "%+v, want %d bytes", e, sent)
}

func TestDatagrams(t *testing.T) {
	w := newWorld(t)
	server, ours := echoUDP(t), listenUDP(t)
	src := udpAddr(ours.LocalAddr())
	n := w.open(one, "udp:"+server.String())
	// As the network leads it: pass is told the destination.
	n.pass(flowKey{src, server}, []byte("first"))
	reply := comes(t, ours, "first")
	n.pass(flowKey{src, server}, []byte("again"))
	comes(t, ours, "again")
	// Once there is a socket for the answers, what the chat sends arrives there.
	must.Get(ours.WriteToUDPAddrPort([]byte("direct"), reply))(t)
	comes(t, ours, "direct")
	n.pass(flowKey{src, server}, nil)
	comes(t, ours, "")
	if n.count() != 1 {
		t.Errorf("%d flows", n.count())
	}
	w.s.sweep(time.Now().Add(idleUDP - time.Minute))
	n.pass(flowKey{src, server}, []byte("still"))
	comes(t, ours, "still")
	w.s.sweep(time.Now().Add(idleUDP + time.Minute))
	e := w.event(Allowed, "")
	expect.True(t, e.Out == 21 && e.In == 21 && e.UDP && e.Addr == server && e.Why == "", "%+v", e)
	w.root.mu.Lock()
	defer w.root.mu.Unlock()
	last := w.root.sockets[len(w.root.sockets)-1]
	if last.Verb != uplink.Reply || last.Local != server || last.Remote != src || last.Chat != one {
		t.Errorf("%+v", last)
	}
}

func TestDatagramsByName(t *testing.T) {
	w := newWorld(t)
	server, ours := echoUDP(t), listenUDP(t)
	w.dns.set("ntp.example.org", "127.0.0.1")
	entry := fmt.Sprintf("udp:ntp.example.org:%d", server.Port())
	n := w.open(one, entry, "udp:"+server.String())
	key := flowKey{udpAddr(ours.LocalAddr()), w.named(n, "ntp.example.org", server.Port())}
	n.datagram(key.src, key.dst, []byte("x"))
	comes(t, ours, "x")
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: list(t, entry)})
	e := w.event(Allowed, "no longer")
	expect.True(t, e.Host == "ntp.example.org", "%+v", e)
	n.datagram(key.src, key.dst, []byte("x")) // its address is private
	w.event(Refused, "private")
}

func TestDatagramsUnlisted(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "192.0.2.1:1-65535", "udp:192.0.2.1:1")
	src := netip.MustParseAddrPort("127.0.0.1:4000")
	n.datagram(src, netip.MustParseAddrPort("192.0.2.1:2"), []byte("x"))
	e := w.event(Refused, "does not list 192.0.2.1:2")
	expect.True(t, e.UDP, "%+v", e)
	if n.count() != 0 {
		t.Errorf("%d flows", n.count())
	}
}

// TestFlowsBound: the flow that was idle for longest makes room.
func TestFlowsBound(t *testing.T) {
	w := newWorld(t)
	server, ours := echoUDP(t), listenUDP(t)
	n := w.open(one, "udp:"+server.String())
	for i := range maxFlows + 1 {
		src := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(20000+i))
		if i == maxFlows {
			src = udpAddr(ours.LocalAddr())
		}
		n.pass(flowKey{src, server}, []byte("x"))
	}
	comes(t, ours, "x")
	e := <-w.events
	expect.True(t, e.Why == errEvicted.Error(), "%+v", e)
	n.mu.Lock()
	defer n.mu.Unlock()
	expect.True(t, len(n.flows) == maxFlows, "%d flows", len(n.flows))
}

// question is one for the address of a host.
func question(t *testing.T, host string) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(host + "."),
			Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	b := must.Get(m.Pack())(t)
	return b
}

// wantAddr checks an answer: the address of the host in the chat, or that there is none.
func wantAddr(t *testing.T, b []byte, want netip.Addr) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || m.ID != 4711 {
		t.Fatal(m, err)
	}
	if !want.IsValid() {
		expect.True(t, m.RCode == dnsmessage.RCodeNameError, "%+v", m)
		return
	}
	must.True(t, len(m.Answers) == 1, "%+v", m)
	a, ok := m.Answers[0].Body.(*dnsmessage.AResource)
	expect.True(t, ok && netip.AddrFrom4(a.A) == want, "%+v, want %s", m, want)
}

func TestQuestions(t *testing.T) {
	w := newWorld(t)
	w.dns.set("api.example.org", "192.0.2.7")
	n := w.open(one, "api.example.org:443")
	ours := listenUDP(t)
	b := make([]byte, 4096)
	for _, host := range []string{"api.example.org", "other.example.org"} {
		n.datagram(udpAddr(ours.LocalAddr()), netip.MustParseAddrPort("127.0.0.53:53"),
			question(t, host))
		k, from, err := ours.ReadFromUDPAddrPort(b)
		must.Do(t, err)
		if from.Addr() != netip.MustParseAddr("127.0.0.53") { // the address that was asked
			t.Error(from)
		}
		var want netip.Addr
		if host == "api.example.org" {
			want = w.named(n, host, 0).Addr()
		}
		wantAddr(t, b[:k], want)
	}
	w.event(Refused, "")
}

// TestReceive: the socket's own datagrams come with their destination, which is loopback here and
// has another port than 53.
func TestReceive(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "udp:127.0.0.0/8:1-65535")
	ours := listenUDP(t)
	must.Get(ours.WriteToUDPAddrPort([]byte("x"), udpAddr(n.udp.LocalAddr())))(t)
	// It is the listener's own address, so nothing comes of it; a question does.
	n.datagram(udpAddr(ours.LocalAddr()), netip.MustParseAddrPort("192.0.2.1:53"), question(t,
		"x.example"))
	w.event(Refused, "")
	if n.count() != 0 {
		t.Errorf("%d flows", n.count())
	}
}

func TestQuestionsOverTCP(t *testing.T) {
	w := newWorld(t)
	w.dns.set("api.example.org", "192.0.2.7")
	n := w.open(one, "api.example.org:443")
	c := w.dial(n, netip.MustParseAddrPort("192.0.2.1:53"))
	for range 2 {
		q := question(t, "api.example.org")
		must.Get(c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))),
			q...)))(t)
		var size [2]byte
		_, err := io.ReadFull(c, size[:])
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, readErr := io.ReadFull(c, b); err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		wantAddr(t, b, w.named(n, "api.example.org", 0).Addr())
	}
	w.call(uplink.Call{Verb: uplink.Change, Chat: one})
	expect.True(t, n.count() == 1, "questions are cut by a change")
}

func TestOriginalDst(t *testing.T) {
	v4 := []byte{2, 0, 0x01, 0xbb, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	v6 := append([]byte{10, 0, 0, 53, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8::1").AsSlice()...)
	mapped := append([]byte{10, 0, 0, 53, 0, 0, 0, 0},
		netip.MustParseAddr("::ffff:192.0.2.1").AsSlice()...)
	for _, c := range []struct {
		oob  []byte
		want string
	}{
		{controlMessage(unix.SOL_IP, unix.IP_ORIGDSTADDR, v4), "192.0.2.1:443"},
		{controlMessage(unix.SOL_IPV6, unix.IPV6_ORIGDSTADDR, append(v6, 0, 0, 0, 0)),
			"[2001:db8::1]:53"},
		{controlMessage(unix.SOL_IPV6, unix.IPV6_ORIGDSTADDR, append(mapped, 0, 0, 0, 0)),
			"192.0.2.1:53"},
		{append(packetInfo(netip.MustParseAddr("192.0.2.9")), controlMessage(unix.SOL_IP,
			unix.IP_ORIGDSTADDR, v4)...), "192.0.2.1:443"},
		{controlMessage(unix.SOL_IP, unix.IP_ORIGDSTADDR, v4[:8]), ""},
		{packetInfo(netip.MustParseAddr("2001:db8::1")), ""},
		{nil, ""},
		{[]byte{1, 2, 3}, ""},
	} {
		got, ok := originalDst(c.oob)
		if ok != (c.want != "") || ok && got != netip.MustParseAddrPort(c.want) {
			t.Errorf("%v: %s, %v", c.oob, got, ok)
		}
	}
}

// TestUDPRefused: a server that is not there ends nothing.
func TestUDPRefused(t *testing.T) {
	w := newWorld(t)
	gone := listenUDP(t)
	server := udpAddr(gone.LocalAddr())
	gone.Close()
	n := w.open(one, "udp:"+server.String())
	ours := listenUDP(t)
	key := flowKey{udpAddr(ours.LocalAddr()), server}
	n.pass(key, []byte("lost"))
	for n.pass(key, []byte("lost")); ; n.pass(key, []byte("lost")) { // until the host says so
		n.mu.Lock()
		host := n.flows[key].host
		n.mu.Unlock()
		if host != nil {
			break
		}
	}
	back, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(server))
	if errors.Is(err, unix.EADDRINUSE) {
		t.Skip("the port is in use")
	} else if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	b := make([]byte, 100)
	for end := time.Now().Add(guard); ; { // the host may still report what was lost
		n.pass(key, []byte("found"))
		_ = back.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		k, _, err := back.ReadFromUDPAddrPort(b)
		switch {
		case err == nil && string(b[:k]) == "found":
			return
		case time.Now().After(end):
			t.Fatal("nothing comes:", err)
		}
	}
}

// controlMessage is one message of cmsg(3).
func controlMessage(level, kind int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[unix.CmsgLen(0):], data)
	return b
}
