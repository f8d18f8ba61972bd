package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackLoopback: chat A tries to reach servers of B and of root over every
// spelling of this machine, with egress and without.
func TestAttackLoopback(t *testing.T) {
	m := open(t, attackOptions(t))
	newPeer(t) // for the host to have addresses beside loopback
	_, rootPort, err := net.SplitHostPort(hostServer(t, "tcp", "[::]:0"))
	must.Do(t, err)
	heard, hostUDP := countDatagrams(t)
	for _, profile := range []string{"default", "web"} {
		t.Run(profile, func(t *testing.T) {
			a, b := inmateOf(t, m, "lo a "+profile, profile), inmateOf(t, m, "lo b "+profile, profile)
			b.background(t, "port", "serve", "tcp", "[::]:0", b.in("port"))
			bPort := portIn(t, b.in("port"))
			for _, host := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "10.213.0.1", "[fd13:213::1]", "203.0.113.1"} {
				loopbackCases(t, a, b, host, rootPort, bPort)
				a.try(t, "send-udp", host+":"+hostUDP) // sent or refused, it must not arrive
			}
		})
	}
	expect.Equal(t, heard.Load(), 0, "a server of root heard … datagrams of chats")
	outcomes(t, "control: root", asHost(t, "send-udp", "127.0.0.1:"+hostUDP), "ok")
	until(t, "control: the server hears root's datagram", func() bool { return heard.Load() == 1 })
}

// countDatagrams is a server of root, how many datagrams came to it, and its port.
func countDatagrams(t *testing.T) (heard *atomic.Int64, port string) {
	t.Helper()
	c, err := net.ListenPacket("udp", "[::]:0")
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	heard = new(atomic.Int64)
	go func() {
		for {
			if _, _, err := c.ReadFrom(make([]byte, 8)); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	_, port, err = net.SplitHostPort(c.LocalAddr().String())
	must.Do(t, err)
	return heard, port
}

// refusals are the answers of a wall. What leaves a network of its own and is refused is accepted
// first, and reset.
const refusals = "ECONNREFUSED EPERM EACCES ENETUNREACH EHOSTUNREACH ECONNRESET EOF EPIPE"

func loopbackCases(t *testing.T, a, b inmate, host, rootPort, bPort string) {
	for _, act := range []string{"dial", "dial-mptcp"} {
		t.Run(act+" root "+host, func(t *testing.T) {
			outcomes(t, "A", a.try(t, act, host+":"+rootPort), refusals)
			outcomes(t, "control: root", asHost(t, act, host+":"+rootPort), "ok")
		})
		t.Run(act+" B "+host, func(t *testing.T) {
			outcomes(t, "A", a.try(t, act, host+":"+bPort), refusals)
			if strings.Contains("127.0.0.1 127.0.0.2 0.0.0.0 [::1] [::]", host) {
				outcomes(t, "control: B", b.try(t, act, host+":"+bPort), "ok")
			}
		})
	}
}

func portIn(t *testing.T, file string) string {
	t.Helper()
	b := must.Get(os.ReadFile(file))(t)
	_, port, err := net.SplitHostPort(string(b))
	must.Do(t, err)
	return port
}

// TestAttackOutside: chat A tries to reach what its profile does not name, and
// the outside tries to reach A. What the profile names is the control.
func TestAttackOutside(t *testing.T) {
	m := open(t, attackOptions(t))
	p := newPeer(t)
	none, web := inmateOf(t, m, "outside none", "default"), inmateOf(t, m, "outside web", "web")
	for _, c := range []struct{ name, address string }{
		{"metadata", "169.254.169.254:80"}, {"metadata, other port", "169.254.169.254:8000"},
		{"private 10", "10.213.0.2:9000"}, {"private 172.16", "172.16.213.2:8000"}, {"private 192.168", "192.168.213.2:8000"},
		{"shared 100.64", "100.64.213.2:8000"}, {"public", "203.0.113.2:80"}, {"private v6", "[fd13:213::2]:9000"},
		{"public v6", "[2001:db8:213::2]:80"}, {"link-local v6", "[fe80::213%" + wireName + "]:8000"}, {"v4 as v6", "[::ffff:203.0.113.2]:80"},
		{"metadata as v6", "[::ffff:169.254.169.254]:80"},
	} {
		for who, i := range map[string]inmate{"none": none, "web": web} {
			t.Run(c.name+" from "+who, func(t *testing.T) {
				const want = refusals + " EINVAL"
				outcomes(t, "A", i.try(t, "dial", c.address), want)
				outcomes(t, "A, MPTCP", i.try(t, "dial-mptcp", c.address), want)
				outcomes(t, "control: root", asHost(t, "dial", c.address), "ok")
			})
		}
	}
	t.Run("what the profile names", func(t *testing.T) {
		for _, address := range []string{"10.213.0.2:8000", "[fd13:213::2]:8000"} {
			outcomes(t, "web", web.try(t, "dial", address), "ok")
			outcomes(t, "none", none.try(t, "dial", address), refusals)
		}
	})
	t.Run("datagrams", func(t *testing.T) { attackByDatagram(t, p, none, web) })
	t.Run("a mark", func(t *testing.T) {
		outcomes(t, "A", web.try(t, "dial-marked", "0x1"), "ENOPROTOOPT")
		outcomes(t, "control: root", asHost(t, "dial-marked", "0x1"), "ok")
	})
	t.Run("devices", func(t *testing.T) {
		for who, i := range map[string]inmate{"none": none, "web": web} {
			expect.Equal(t, i.try(t, "devices"), "ok lo", "a chat of %s has", who)
		}
		got := asHost(t, "devices")
		expect.True(t, strings.Contains(got, wireName), "control: root sees %s", got)
	})
	t.Run("from outside", func(t *testing.T) { outsideIn(t, p, web) })
}

func attackByDatagram(t *testing.T, p *peer, chats ...inmate) {
	for _, address := range []string{"10.213.0.2:9000", "203.0.113.2:9000", "[2001:db8:213::2]:9000", "169.254.169.254:9000"} {
		for _, i := range chats {
			outcomes(t, "A to "+address, i.try(t, "send-udp", address), refusals+" ok") // sent, and dropped
		}
	}
	expect.Equal(t, p.do(t, "heard"), "ok 0", "the peer heard … datagrams of chats")
	outcomes(t, "control: root", asHost(t, "send-udp", "10.213.0.2:9000"), "ok")
	until(t, "control: the peer hears root's datagram", func() bool { return p.do(t, "heard") == "ok 1" })
}

// outsideIn has the peer connect to a listener of the chat on every address of
// the host. It must not hear the secret; that the kernel may let it wait is no
// matter.
func outsideIn(t *testing.T, p *peer, a inmate) {
	_, rootPort, err := net.SplitHostPort(hostServer(t, "tcp", "[::]:0"))
	must.Do(t, err)
	a.background(t, "port4", "serve", "tcp4", "0.0.0.0:0", a.in("port4"))
	a.background(t, "port6", "serve", "tcp", "[::]:0", a.in("port6"))
	port4, port6 := portIn(t, a.in("port4")), portIn(t, a.in("port6"))
	attack := "dial-any"
	for _, host := range []string{"10.213.0.1", "203.0.113.1", "[fd13:213::1]", "[2001:db8:213::1]"} {
		attack += " " + host + ":" + port6
		if host[0] != '[' {
			attack += " " + host + ":" + port4
		}
		outcomes(t, "control: the peer to root", p.do(t, "dial "+host+":"+rootPort), "ok")
	}
	for _, own := range []string{"127.0.0.1:" + port4, "[::1]:" + port6} {
		outcomes(t, "control: A itself", a.try(t, "dial", own), "ok")
	}
	got := p.do(t, attack)
	expect.True(t, !strings.HasPrefix(got, "ok"), "the peer by %s: got %s", attack, got)
}

// TestAttackHostNetwork: chat A tries what the host's network would give it, were it in that.
func TestAttackHostNetwork(t *testing.T) {
	m := open(t, attackOptions(t))
	newPeer(t)
	for name, try := range map[string]func(*testing.T, *manager) (through bool, what string){
		"all ports of the host":     takePorts,
		"see a neighbour's sockets": seeSockets,
	} {
		t.Run(name, func(t *testing.T) {
			through, what := try(t, m)
			expect.True(t, !through, "%v", what)
		})
	}
}

// portScript binds every port that the kernel chooses from, 900 in a process,
// and then makes the file bound. It is Perl, for 30 processes of the attacker's
// size would not fit into the chat's memory.
const portScript = `use Socket; my @k;
for my $p (32768..60999) {
	if (@k && $p % 900 == 0) { fork() and sleep 1000; @k = () }
	socket(my $s, PF_INET, SOCK_STREAM, 0) or next;
	bind($s, sockaddr_in($p, INADDR_ANY));
	push @k, $s;
}
open F, ">", "$ENV{HOME}/bound"; close F; sleep 1000`

// takePorts: in the host's network a bound port is taken for all, root too.
func takePorts(t *testing.T, m *manager) (bool, string) {
	a := inmateOf(t, m, "ports", "web")
	must.Do(t, os.WriteFile(a.in("ports.pl"), []byte(portScript), 0o644))
	a.typeLine(t, "perl ~/ports.pl &")
	bound := exists(a.in("bound"))
	until(t, "the ports are bound, or the session ended", func() bool { return bound() || !isAwake(t, a.m, a.Chat) })
	if !isAwake(t, a.m, a.Chat) {
		return false, "the session was ended, for its sockets held too much"
	}
	got := asHost(t, "dial", "10.213.0.2:8000")
	return !strings.HasPrefix(got, "ok"), "root dials out: " + got
}

// seeOpens: inotify(7) tells of a file, not of a mount, and all chats have the
// same /usr.
func seeOpens(t *testing.T, m *manager) (bool, string) {
	a, b := inmateOf(t, m, "opens a", "default"), inmateOf(t, m, "opens b", "default")
	a.typeLine(t, a.program+" watch /usr/bin/uname ~/ready ~/go >~/got.new; mv ~/got.new ~/got")
	must.Do(t, awaitFile(a.in("ready")))
	b.sh(t, "uname")
	must.Do(t, os.WriteFile(a.in("go"), nil, 0o644))
	must.Do(t, awaitFile(a.in("got")))
	got, err := os.ReadFile(a.in("got"))
	return strings.HasPrefix(string(got), "ok"), fmt.Sprintf("A on B running uname: %s, %v", strings.TrimSpace(string(got)), err)
}

// seeSockets: /proc/net/unix names the sockets of everybody in one network.
func seeSockets(t *testing.T, m *manager) (bool, string) {
	a, b := inmateOf(t, m, "sockets a", "web"), inmateOf(t, m, "sockets b", "web")
	b.background(t, "ready", "serve-unix", b.in("s"), b.in("ready"))
	r := run(t, m, a.ID, "grep "+string(b.ID)+" /proc/net/unix")
	return r.Exit == 0, "A reads " + chat.Quote(r.Stdout)
}

// takenOverName is what chatd-root calls a chatd-egress, and how this program knows that it is one.
const takenOverName = "chatd-egress"

// TestAttackDNSSockets runs this program in the place of chatd-egress. It asks chatd-root for
// sockets to the DNS servers, disconnects them and connects them elsewhere. Without the packet
// rules each of them gets through.
func TestAttackDNSSockets(t *testing.T) {
	for _, l := range newInternet(t).listen(t, "53") {
		go answerAll(l)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, port := range []string{"7999", "53"} {
			l := must.Get(net.Listen("tcp", net.JoinHostPort(host, port)))(t)
			t.Cleanup(func() { _ = l.Close() })
			go answerAll(l)
		}
	}
	for _, without := range []bool{true, false} {
		t.Run(fmt.Sprintf("without %t", without), func(t *testing.T) {
			opt := named(t, "api.example.test:7000")
			opt.DNSServers = nil
			for _, s := range dnsOfTest {
				opt.DNSServers = append(opt.DNSServers, netip.MustParseAddrPort(s))
			}
			opt.Egress = attacker(t)
			want := "refused"
			if without {
				opt.Without = []chat.LayerName{chat.LayerEgress}
				want = "through"
			}
			m := open(t, opt)
			inmateOf(t, m, "taken over", "named")
			said := func() string {
				return text(filepath.Join(opt.Run, "egress", "log"))
			}
			if !comes(func() bool { return strings.Contains(said(), "TRIED all") }) {
				t.Fatalf("it did not try all:\n%s", said())
			}
			for line := range strings.Lines(said()) {
				to, got, is := strings.Cut(strings.TrimSpace(line), ": ")
				switch {
				case !is:
				case strings.HasPrefix(to, "control") && got != "through":
					t.Error(line)
				case !strings.HasPrefix(to, "control") && got != want:
					t.Errorf("%s, want %s", line, want)
				}
			}
		})
	}
}

// dnsOfTest are servers of each family, on this host and elsewhere.
var dnsOfTest = []string{"127.0.0.1:53", "[::1]:53", outsideAddr + ":53"}

// elsewhere are what no socket to a DNS server may reach.
var elsewhere = []string{"127.0.0.1:7999", "[::1]:7999", "169.254.169.254:80", "10.213.0.2:8000",
	"203.0.113.2:7000", "[fd13:213::2]:8000", "[2001:db8:213::2]:7000"}

// takenOverEgress is the program in the place of chatd-egress. It says what it finds on standard
// error, which is its log.
func takenOverEgress() int {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return 1
	}
	c, err := l.(*net.UnixListener).AcceptUnix()
	if err != nil {
		return 1
	}
	f, err := c.File()
	if err != nil {
		return 1
	}
	conn, err := uplink.New(f)
	if err != nil {
		return 1
	}
	opened := make(chan chat.ID, 1)
	go func() {
		id := <-opened
		for server := range dnsOfTest {
			for _, udp := range []bool{false, true} {
				tryElsewhere(conn, id, server, udp)
			}
		}
		fmt.Fprintln(os.Stderr, "TRIED all")
	}()
	_ = conn.Serve(context.Background(), func(_ context.Context, c uplink.Call,
		files []*os.File) ([]*os.File, uplink.Answer) {
		for _, f := range files {
			_ = f.Close()
		}
		if c.Verb == uplink.Open {
			opened <- c.Chat
		}
		return nil, uplink.Answer{}
	})
	return 0
}

// tryElsewhere connects sockets to a DNS server to all that is elsewhere, and back to the server.
func tryElsewhere(conn *uplink.Conn, id chat.ID, server int, udp bool) {
	own := netip.MustParseAddrPort(dnsOfTest[server])
	for _, to := range append([]string{own.String()}, elsewhere...) {
		at := netip.MustParseAddrPort(to)
		if own.Addr().Is4() && at.Addr().Is6() {
			continue
		}
		word := "attack"
		if at == own {
			word = "control"
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, files, err := conn.Call(ctx, uplink.Call{Verb: uplink.Upstream, Chat: id, Server: server,
			UDP: udp})
		cancel()
		if err == nil {
			err = reconnect(int(files[0].Fd()), own.Addr().Is6(), at)
			_ = files[0].Close()
		}
		fmt.Fprintf(os.Stderr, "%s server %s udp=%t to %s: %s\n", word, own, udp, to, throughOr(err))
	}
}

func throughOr(err error) string {
	switch {
	case err == nil:
		return "through"
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "refused"
	}
	return err.Error()
}

// reconnect disconnects a socket, connects it to at, and sends.
func reconnect(fd int, v6 bool, at netip.AddrPort) error {
	disconnect(fd)
	if err := unix.SetNonblock(fd, false); err != nil {
		return err
	}
	tv := unix.Timeval{Sec: 20}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	if v6 && at.Addr().Is4() {
		at = netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port())
	}
	err := unix.Connect(fd, netns.Sockaddr(at))
	if err == nil {
		_, err = unix.Write(fd, []byte("x"))
	}
	return err
}

// holdActs hold connections.
var holdActs = map[string]act{
	// hold-connections ADDRESS TIMES SECONDS: opens them all and keeps them for so long
	"hold-connections": func(a []string) (string, error) {
		var all sync.WaitGroup
		end := time.Now().Add(time.Duration(number(a[2])) * time.Second)
		for range number(a[1]) {
			all.Go(func() {
				c, err := (&net.Dialer{Deadline: end}).Dial("tcp", a[0])
				if err == nil {
					_ = c.SetDeadline(end)
					_, _ = c.Read(make([]byte, 1))
					_ = c.Close()
				}
			})
		}
		all.Wait()
		return "held", nil
	},
}

// TestAttackManyConnections: a chat that opens 10,000 connections has 512, and another chat
// connects meanwhile. Without chatd-egress, they all stand.
func TestAttackManyConnections(t *testing.T) {
	out := newInternet(t)
	var now, most atomic.Int64
	for _, l := range out.listen(t, "7002") {
		go each(l, func(c net.Conn) {
			n := now.Add(1)
			defer now.Add(-1)
			if n > 512 { // some may have ended of which no goroutine knows yet
				n = min(n, out.standing(t, 7002))
			}
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			_, _ = c.Read(make([]byte, 1))
		})
	}
	m := open(t, named(t, append(usual, "api.example.test:7002")...))
	a, b := inmateOf(t, m, "many a", "named"), inmateOf(t, m, "many b", "named")
	var got string
	for hold := 5; ; hold *= 2 { // until it has its share in that time
		done := going(func() string {
			return a.try(t, "hold-connections", "api.example.test:7002", "10000", strconv.Itoa(hold))
		})
		until(t, "A has its share", func() bool { return now.Load() >= 500 || len(done) > 0 })
		outcomes(t, "B meanwhile", b.try(t, "say", "api.example.test:7000", "x"), "ok")
		got = <-done
		if most.Load() >= 400 || !strings.HasPrefix(got, "ok") || hold > int(longEnough.Seconds()) {
			break
		}
	}
	// Where chatd-egress gets no CPU time, connections wait in the chat until their memory is more
	// than the layer sockets lets it have: then its session ends.
	outcomes(t, "A", got, "ok SIGKILL")
	if n := most.Load(); n > 512 || n < 400 && strings.HasPrefix(got, "ok") {
		t.Errorf("A had %d connections, want 512", n)
	}
	if strings.HasPrefix(got, "ok") {
		outcomes(t, "A afterwards", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	}
	most.Store(0)
	outcomes(t, "control", asHost(t, "hold-connections", outsideAddr+":7002", "1500", "5"), "ok")
	n := most.Load()
	expect.True(t, n > 512, "control: %d connections stood", n)
}

// TestAttackRedirect: a listed server cannot lead a chat's client to what its profile does
// not open.
func TestAttackRedirect(t *testing.T) {
	out := newInternet(t)
	to := []string{"http://169.254.169.254:8080/", "http://meta.example.test:8080/",
		"http://203.0.113.1:8080/", "http://other.example.test:8080/"}
	for _, l := range out.listen(t, "8090") {
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to[r.URL.Path[1]-'0'], http.StatusFound)
			}))
		}()
	}
	m := open(t, named(t, "api.example.test:8090", "meta.example.test:8080"))
	a := inmateOf(t, m, "redirect", "named")
	for i, where := range to {
		n := string(rune('0' + i))
		got := a.try(t, "get", "http://api.example.test:8090/"+n, "X", "y")
		expect.True(t, !strings.HasPrefix(got, "ok") && got != "", "%s: %q", where, got)
	}
	outcomes(t, "control", asHost(t, "get", "http://"+outsideAddr+":8090/0", "X", "y"), "ok")
}

// trackedNow is how many flows the kernel tracks in this network namespace.
func trackedNow(t *testing.T) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"))(t)
	return must.Get(strconv.Atoi(strings.TrimSpace(string(b))))(t)
}

// TestAttackFlows: a chat that sends datagrams from one port after the other fills its part of the
// table of tracked flows and no more, and another chat goes on. Without the bound it fills more; on a
// slow host some flows end before they are counted.
func TestAttackFlows(t *testing.T) {
	newInternet(t)
	const many, bound = 400, 100
	for _, c := range []struct {
		name          string
		max, from, to int
	}{{"with", bound, 0, bound}, {"without", 1 << 20, bound + 1, 2 * many}} {
		t.Run(c.name, func(t *testing.T) {
			opt := named(t, usual...)
			opt.MaxFlows = c.max
			m := open(t, opt)
			a, b := inmateOf(t, m, "greedy", "named"), inmateOf(t, m, "other", "named")
			before := trackedNow(t)
			got := a.try(t, "flows", strconv.Itoa(many), "203.0.113.2:123")
			must.True(t, got == "ok done", "%v", got)
			outcomes(t, "another chat, by name", b.try(t, "say", "api.example.test:7000", "x"), "ok")
			if n := trackedNow(t) - before; n < c.from || n > c.to {
				t.Errorf("%d more flows are tracked, want %d to %d", n, c.from, c.to)
			}
			h := must.Get(m.Host(operator(t.Context())))(t)
			for _, l := range h.Layers {
				if l.Name == "egress" {
					t.Log(l.Probe)
					if refused := strings.Contains(l.Probe, "more were refused"); refused != (c.max == bound) ||
						!strings.Contains(l.Probe, "chats began ") {
						t.Errorf("layer egress says %s", l.Probe)
					}
				}
			}
		})
	}
}
