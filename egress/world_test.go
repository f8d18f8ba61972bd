package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const (
	one = chat.ID("aaaaaaaaaaaaaaaa")
	two = chat.ID("bbbbbbbbbbbbbbbb")
)

// guard ends what hangs. No test depends on how long anything takes.
const guard = time.Minute

// world is a server, a chat of it, and a chatd-root that makes ordinary sockets.
type world struct {
	t      testing.TB
	s      *server
	path   string
	root   *fakeRoot
	events chan Event
	front  *net.TCPListener // where connections of the chat are accepted
	dns    *fakeDNS
}

// newWorld begins one. At its end every goroutine and descriptor must be gone.
func newWorld(t testing.TB) *world {
	t.Helper()
	goroutines, fds := runtime.NumGoroutine(), countFDs(t)
	t.Cleanup(func() { wantBack(t, goroutines, fds) })
	w := &world{t: t, path: filepath.Join(t.TempDir(), "s"), events: make(chan Event, 10000)}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: w.path})
	must.Do(t, err)
	o := Options{Listener: l, Root: uint32(os.Getuid()), Log: slog.New(slog.DiscardHandler)}
	w.s = newServer(o)
	w.s.told = func(e Event) { w.events <- e }
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.s.run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-served)
	})
	w.dns = newDNS(t)
	if w.front, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.front.Close() })
	w.root = w.newRoot()
	return w
}

// countFDs counts this process's descriptors. Pipes of splice(2) are closed by the collector.
func countFDs(t testing.TB) int {
	t.Helper()
	entries := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(entries)
}

// wantBack waits until there are no more goroutines and descriptors than before.
func wantBack(t testing.TB, goroutines, fds int) {
	t.Helper()
	deadline := time.Now().Add(guard)
	for runtime.NumGoroutine() > goroutines || countFDs(t) > fds {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines and %d descriptors, want %d and %d\n%s", runtime.NumGoroutine(),
				countFDs(t), goroutines, fds, b[:runtime.Stack(b, true)])
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

// fakeRoot is chatd-root.
type fakeRoot struct {
	*uplink.Conn
	w     *world
	ended chan error

	mu      sync.Mutex
	sockets []uplink.Call // that were asked for
	refuse  bool          // certificates
	silent  chan struct{} // certificates wait for it, unless nil
	reports []uplink.Event
	numbers []uint64 // of reports with events
	carried []uplink.Carried
	deaf    bool         // to reports
	raw     bool         // replies are by raw sockets
	made    func(fd int) // called for each socket to a server, unless nil
}

func (w *world) newRoot() *fakeRoot {
	w.t.Helper()
	r := w.silentRoot()
	must.Do(w.t, expect.Err(r.Call(w.t.Context(), uplink.Call{Verb: uplink.Hello,
		Upstreams: []netip.AddrPort{w.dns.addr}})))
	return r
}

// silentRoot is one that says no hello.
func (w *world) silentRoot() *fakeRoot {
	w.t.Helper()
	c := must.Get(dialUplink(w.path))(w.t)
	r := &fakeRoot{Conn: c, w: w, ended: make(chan error, 1)}
	go func() { r.ended <- c.Serve(context.Background(), r.answer); close(r.ended) }()
	w.t.Cleanup(r.end)
	return r
}

func dialUplink(path string) (*uplink.Conn, error) {
	u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		return nil, err
	}
	f, err := u.File()
	if err = errors.Join(err, u.Close()); err != nil {
		return nil, err
	}
	return uplink.New(f)
}

func (r *fakeRoot) end() {
	_ = r.Close()
	<-r.ended
}

func (r *fakeRoot) answer(
	_ context.Context, c uplink.Call, _ []*os.File,
) ([]*os.File, uplink.Answer) {
	if c.Verb == uplink.Events {
		return nil, r.hear(c)
	}
	r.mu.Lock()
	r.sockets = append(r.sockets, c)
	r.mu.Unlock()
	f, err := r.socket(c)
	if err != nil {
		return nil, uplink.Answer{Error: err.Error()}
	}
	return []*os.File{f}, uplink.Answer{}
}

// hear takes a report, unless it is deaf.
func (r *fakeRoot) hear(c uplink.Call) uplink.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(c.Events) > 0 {
		r.numbers = append(r.numbers, c.Report)
	}
	if r.deaf {
		return uplink.Answer{Error: "deaf"}
	}
	r.reports = append(r.reports, c.Events...)
	r.carried = append(r.carried, c.Carried...)
	return uplink.Answer{}
}

func (r *fakeRoot) socket(c uplink.Call) (*os.File, error) {
	if c.Verb == uplink.Certificate {
		return r.certificate(c)
	}
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if c.IPv6 && c.Verb == uplink.Socket {
		family = unix.AF_INET6
	}
	if c.UDP {
		kind = unix.SOCK_DGRAM
	}
	proto := 0
	if c.Verb == uplink.Reply && r.raw {
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_UDP
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, err
	}
	if r.made != nil && c.Verb == uplink.Socket {
		r.made(fd)
	}
	f := os.NewFile(uintptr(fd), "socket")
	switch c.Verb {
	case uplink.Upstream:
		err = unix.Connect(fd, sockaddr(r.w.dns.addr))
		if errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	case uplink.Reply: // an address that is not of this host stands for the one asked for
		if c.Remote.Addr().Is4() {
			err = unix.Connect(fd, sockaddr(c.Remote))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open opens the network of a chat with a list.
func (w *world) open(id chat.ID, allow ...string) *network {
	w.t.Helper()
	w.call(uplink.Call{Verb: uplink.Open, Chat: id, Owner: "of " + string(id),
		Allow: list(w.t, allow...)}, w.files()...)
	return w.s.network(id)
}

func (w *world) call(c uplink.Call, files ...*os.File) uplink.Answer {
	w.t.Helper()
	a, _, err := w.root.Call(w.t.Context(), c, files...)
	if err = errors.Join(err, uplink.CloseFiles(files)); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// files are what comes with Open.
func (w *world) files() []*os.File {
	w.t.Helper()
	l := must.Get(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(w.t)
	defer l.Close()
	u := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(w.t)
	defer u.Close()
	tcp, err1 := l.File()
	udp, err2 := u.File()
	names, err3 := os.Create(filepath.Join(w.t.TempDir(), "names"))
	must.Do(w.t, errors.Join(err1, err2, err3))
	must.Do(w.t, unix.SetsockoptInt(int(udp.Fd()), unix.SOL_IP, unix.IP_RECVORIGDSTADDR,
		1))
	return []*os.File{tcp, udp, names}
}

// count is how many connections and flows there are.
func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.carried)
}

func list(t testing.TB, allow ...string) (out []chat.Allow) {
	t.Helper()
	for _, s := range allow {
		a := must.Get(chat.ParseAllow(s))(t)
		out = append(out, a)
	}
	return out
}

// dial is a connection of the chat to dst.
func (w *world) dial(n *network, dst netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	c := must.Get(net.DialTCP("tcp4", nil, w.front.Addr().(*net.TCPAddr)))(w.t)
	theirs := must.Get(w.front.AcceptTCP())(w.t)
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(guard))
	n.carry(theirs, dst)
	return c
}

// named is a made-up address of a host.
func (w *world) named(n *network, host string, port uint16) netip.AddrPort {
	w.t.Helper()
	a := must.First(n.book.Addrs(host))(w.t)
	return netip.AddrPortFrom(a, port)
}

// byName opens a chat in which host stands for a server of the test, and returns a connection.
func (w *world) byName(host string, server netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	w.dns.set(host, server.Addr().String())
	n := w.open(one, fmt.Sprintf("%s:%d", host, server.Port()), server.String())
	return w.dial(n, w.named(n, host, server.Port()))
}

// event waits for the next event.
func (w *world) event(verdict chat.EgressVerdict, why string) Event {
	w.t.Helper()
	select {
	case e := <-w.events:
		expect.True(w.t, e.Verdict == verdict && strings.Contains(e.Why, why),
			"%+v, want %s because of %q", e, verdict, why)
		return e
	case <-time.After(guard):
		w.t.Fatal("there is no event")
		return Event{}
	}
}

// listenTCP is a server of the test.
func listenTCP(t testing.TB, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l := must.Get(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(guard))
			all.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return addrOf(l.Addr())
}

// echo sends back what it gets, and ends when its peer has.
func echo(c *net.TCPConn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// wantEcho checks that a connection is carried.
func wantEcho(t testing.TB, c *net.TCPConn, text string) {
	t.Helper()
	must.Get(io.WriteString(c, text))(t)
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	must.True(t, err == nil && string(b) == text, "%q, %v", b, err)
}

// wantReset checks that a connection ends with a reset and without a byte.
func wantReset(t testing.TB, c *net.TCPConn) {
	t.Helper()
	b, err := io.ReadAll(c)
	expect.True(t, len(b) == 0 && errors.Is(err, unix.ECONNRESET), "%q, %v, want a reset", b, err)
}

// fakeDNS answers questions for addresses.
type fakeDNS struct {
	addr netip.AddrPort
	mu   sync.Mutex
	host map[string][]netip.Addr
}

func newDNS(t testing.TB) *fakeDNS {
	t.Helper()
	c := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	d := &fakeDNS{addr: udpAddr(c.LocalAddr()), host: map[string][]netip.Addr{}}
	done := make(chan struct{})
	go func() { defer close(done); d.serve(c) }()
	t.Cleanup(func() { c.Close(); <-done })
	return d
}

func udpAddr(a net.Addr) netip.AddrPort { return plain(a.(*net.UDPAddr).AddrPort()) }

func (d *fakeDNS) set(host string, addrs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host[host] = nil
	for _, a := range addrs {
		d.host[host] = append(d.host[host], netip.MustParseAddr(a))
	}
}

func (d *fakeDNS) serve(c *net.UDPConn) {
	b := make([]byte, 4096)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(b[:n]); err != nil || len(m.Questions) != 1 {
			continue
		}
		out, err := d.answer(m)
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(out, from)
		}
	}
}

func (d *fakeDNS) answer(m dnsmessage.Message) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := m.Questions[0]
	if isSilent(q.Name.String()) {
		return nil, errSilent
	}
	addrs, known := d.host[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type, TTL: 60}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
				Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
				Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
	t.Skip("SKIPPED: needs root, for raw sockets")
}
