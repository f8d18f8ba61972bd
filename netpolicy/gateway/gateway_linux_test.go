package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const a, b, c chat.ID = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"

func allow(t testing.TB, texts ...string) (all []chat.Allow) {
	t.Helper()
	for _, text := range texts {
		a := must.Get(chat.ParseAllow(text))(t)
		all = append(all, a)
	}
	return all
}

func TestLifeOfAChat(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, allow(t, "api.example.com:443")}, session(t)))
	egress.heard("hello", "open "+string(a)+" +++ api.example.com:443")
	must.Do(t, g.Change(t.Context(), a, allow(t, "192.0.2.0/24:80")))
	must.Do(t, g.Change(t.Context(), b, nil)) // of a chat that is not open
	egress.heard("change " + string(a) + " 192.0.2.0/24:80")
	expect.NoError(t, expect.Err(os.Stat(filepath.Join(dir, "names-"+string(a)))))
	must.Do(t, g.Close(t.Context(), a), g.Close(t.Context(), a))
	egress.heard("close " + string(a))
	if _, err := os.Stat(filepath.Join(dir, "names-"+string(a))); !errors.Is(err, os.ErrNotExist) {
		t.Error("the names outlive the chat:", err)
	}
}

// TestEgressEnds: the next chatd-egress gets what the last one had, with the latest list. A chat
// that began in between waits for it.
func TestEgressEnds(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "open "+string(a)+" +++")
	must.Do(t, g.Change(t.Context(), a, allow(t, "192.0.2.1:80")))
	egress.heard("change " + string(a) + " 192.0.2.1:80")
	egress.end()
	egress.heard("hello", "open "+string(a)+" +++ 192.0.2.1:80")
}

// TestRootEnds: what an earlier chatd-root opened goes on. What chatd-egress has and no session
// needs is closed; what it lost is made again.
func TestRootEnds(t *testing.T) {
	dir := t.TempDir()
	egress := newCarrier(t, dir, a, b)
	must.Root(t, "to join network namespaces")
	g := gatewayOf(Options{Dir: dir})
	must.Do(t, g.Adopt(Chat{a, "", 70001, allow(t, "192.0.2.1:80")}, session(t)))
	follow(t, g)
	egress.heard("hello", "close "+string(b), "change "+string(a)+" 192.0.2.1:80")

	egress.mu.Lock()
	egress.has = nil
	egress.mu.Unlock()
	egress.end()
	egress.heard("hello", "open "+string(a)+" +++ 192.0.2.1:80")
}

// TestSocketsFor: chatd-egress gets the sockets that it may have, and no others.
func TestSocketsFor(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "open "+string(a)+" +++")
	addr := netip.MustParseAddrPort
	client := addr("198.18.0.1:4000")
	for name, tt := range map[string]struct {
		call     uplink.Call
		uid, gid uint32 // 0: it is refused
	}{
		"the chat's": {uplink.Call{Verb: uplink.Socket, Chat: a}, 70001, 60998},
		"the chat's, UDP, IPv6": {uplink.Call{Verb: uplink.Socket, Chat: a, UDP: true,
			IPv6: true}, 70001, 60998},
		"of another chat": {uplink.Call{Verb: uplink.Socket, Chat: b}, 0, 0},
		"of no chat":      {uplink.Call{Verb: uplink.Socket}, 0, 0},
		"a DNS server":    {uplink.Call{Verb: uplink.Upstream, Chat: a, UDP: true}, 60997, 60998},
		"the other one": {uplink.Call{Verb: uplink.Upstream, Chat: a, Server: 1, UDP: true}, 60997,
			60998},
		"for no chat":    {uplink.Call{Verb: uplink.Upstream, UDP: true}, 0, 0},
		"a third one":    {uplink.Call{Verb: uplink.Upstream, Chat: a, Server: 2, UDP: true}, 0, 0},
		"the one before": {uplink.Call{Verb: uplink.Upstream, Chat: a, Server: -1, UDP: true}, 0, 0},
		"no verb":        {uplink.Call{Chat: a}, 0, 0},
		"root's verb":    {uplink.Call{Verb: uplink.Open, Chat: c}, 0, 0},
		"from loopback": {uplink.Call{Verb: uplink.Reply, Chat: a,
			Local: addr("127.0.0.1:80"), Remote: client}, 0, 0},
		"from mapped loopback": {uplink.Call{Verb: uplink.Reply, Chat: a,
			Local: addr("[::ffff:127.0.0.1]:80"), Remote: client}, 0, 0},
		"from the session": {uplink.Call{Verb: uplink.Reply, Chat: a, Local: client,
			Remote: client}, 0, 0},
		"from two families": {uplink.Call{Verb: uplink.Reply, Chat: a,
			Local: addr("[2001:db8::1]:80"), Remote: client}, 0, 0},
		"from nowhere": {uplink.Call{Verb: uplink.Reply, Chat: a, Remote: client}, 0, 0},
		"in another chat": {uplink.Call{Verb: uplink.Reply, Chat: b,
			Local: addr("192.0.2.1:80"), Remote: client}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := egress.ask(tt.call)
			switch {
			case tt.uid == 0 && err == nil:
				t.Errorf("it gets a socket of uid %d", st.Uid)
			case tt.uid != 0 && (err != nil || st.Uid != tt.uid || st.Gid != tt.gid):
				t.Errorf("uid %d gid %d, %v, want %d %d", st.Uid, st.Gid, err, tt.uid, tt.gid)
			}
		})
	}
	_, err := egress.ask(uplink.Call{Verb: uplink.Reply, Chat: a, Local: addr("192.0.2.1:123"),
		Remote: client})
	expect.True(t, err == nil, "%v", err)
}

// TestNoProgram: what cannot be started is reported, and sessions begin: their connections wait.
func TestNoProgram(t *testing.T) {
	dir := t.TempDir()
	reports := make(chan error, 16)
	must.Root(t, "to join network namespaces")
	g := follow(t, gatewayOf(Options{Dir: dir, Program: filepath.Join(dir, "none"),
		Report: func(err error) { reports <- err }}))
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	expect.Is(t, <-reports, os.ErrNotExist, "")
	expect.True(t, !answers(g), "nobody is there")
	egress := newCarrier(t, dir)
	egress.heard("hello", "open "+string(a)+" +++")
	expect.NoError(t, <-reports)
}

// TestSessionsMeetHello: a session that began while chatd-egress still has the chat's last one
// replaces it.
func TestSessionsMeetHello(t *testing.T) {
	dir := t.TempDir()
	g := gatewayOf(Options{Dir: dir})
	must.Root(t, "to join network namespaces")
	must.Do(t, g.Adopt(Chat{a, "", 70001, nil}, session(t)))
	must.Do(t, g.Close(t.Context(), a), g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress := newCarrier(t, dir, a)
	follow(t, g)
	egress.heard("hello", "open "+string(a)+" +++")
}

// TestChangeWithoutEgress: nobody is told that connections are cut while they may live.
func TestChangeWithoutEgress(t *testing.T) {
	g := gatewayOf(Options{Dir: t.TempDir()})
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	defer func() { must.Do(t, g.Shut()) }()
	expect.Is(t, g.Change(t.Context(), a, nil), chat.ErrBusy, "")
	must.Do(t, g.Change(t.Context(), b, nil))
}

// TestServersMeetHello: servers that are replaced while chatd-egress is greeted are told.
func TestServersMeetHello(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	servers := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.2:53")}
	var once sync.Once
	egress := newCarrier(t, dir)
	egress.greeted = func() {
		once.Do(func() { must.Do(t, g.SetServers(context.Background(), servers)) })
	}
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "hello", "open "+string(a)+" +++")
}

// TestPortIsTaken: a chat whose port an earlier chatd-egress still holds is tried again, and what
// keeps it from its network is reported until then.
func TestPortIsTaken(t *testing.T) {
	dir := t.TempDir()
	init := session(t)
	reports := make(chan error, 16)
	g := gatewayOf(Options{Dir: dir, Report: func(err error) { reports <- err }})
	must.Do(t, g.Adopt(Chat{a, "", 70001, nil}, init))
	ns := must.Get(netns.Open(init))(t)
	defer ns.Close()
	tcp, udp, err := ns.Listen()
	must.Do(t, err)
	egress := newCarrier(t, dir)
	follow(t, g)
	expect.Is(t, <-reports, unix.EADDRINUSE, "")
	egress.heard("hello")
	expect.Is(t, g.Change(t.Context(), a, nil), chat.ErrBusy, "")
	must.Do(t, tcp.Close(), udp.Close())
	egress.heard("open " + string(a) + " +++")
	expect.NoError(t, <-reports)
}

// TestNamesOfTheNextSession: what still writes names of a session does not write them to the next.
func TestNamesOfTheNextSession(t *testing.T) {
	must.Root(t, "to join network namespaces")
	dir := t.TempDir()
	g := gatewayOf(Options{Dir: dir})
	defer func() { must.Do(t, g.Shut()) }()
	name := filepath.Join(dir, "names-"+string(a))
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	earlier := must.Get(os.OpenFile(name, os.O_WRONLY, 0))(t)
	defer earlier.Close()
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	must.Get(earlier.WriteString("spoilt.example.com\n"))(t)
	if b, err := os.ReadFile(name); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// TestLogHasRoom: a log that has come near the limit of files begins anew.
func TestLogHasRoom(t *testing.T) {
	g := gatewayOf(Options{Dir: t.TempDir()})
	name := filepath.Join(g.opt.Dir, "log")
	for size, want := range map[int64]int64{10: 10, maxLog: maxLog, 2 * maxLog: 0} {
		must.Do(t, os.WriteFile(name, nil, 0o600), os.Truncate(name, size))
		f := must.Get(g.openLog())(t)
		if st, err := f.Stat(); err != nil || st.Size() != want {
			t.Errorf("%d bytes of %d are left, %v", st.Size(), size, err)
		}
		must.Do(t, f.Close())
	}
}

// TestUnread: a chatd-egress that asks much and reads nothing holds up no chat.
func TestUnread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := followed(t, dir)
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "sock"),
		Net: "unixpacket"}))(t)
	flooded := make(chan struct{}, 1)
	go flood(t, l, flooded)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	<-flooded
	must.Do(t, l.Close()) // it is not found again
	_ = g.Change(t.Context(), a, nil)
	must.Do(t, g.Open(t.Context(), Chat{b, "", 70002, nil}, session(t)), g.Close(t.Context(), a))
}

// flood answers Hello and Open, asks for more than the socket holds answers to, and reads no more.
func flood(t *testing.T, l *net.UnixListener, flooded chan<- struct{}) {
	u, err := l.AcceptUnix()
	if err != nil {
		t.Error(err)
		return
	}
	defer u.Close()
	for _, answer := range []string{`{"id":1,"answer":{}}`, `{"id":2,"answer":{}}`} {
		expect.NoError(t, expect.Err(u.Read(make([]byte, 1024))))
		expect.NoError(t, expect.Err(u.Write([]byte(answer))))
	}
	call := []byte(`{"id":1,"call":{"verb":"open"}}`)
	for range 4096 {
		expect.NoError(t, u.SetWriteDeadline(time.Now().Add(time.Second)))
		if _, err := u.Write(call); err != nil {
			break // full
		}
	}
	flooded <- struct{}{}
	<-t.Context().Done()
}
