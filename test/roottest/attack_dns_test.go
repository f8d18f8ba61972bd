package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
	"github.com/chatd/chatd/test/must"
)

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
				b, _ := os.ReadFile(filepath.Join(opt.Run, "egress", "log"))
				return string(b)
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
