package roottest

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

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
		if got := asHost(t, "devices"); !strings.Contains(got, wireName) {
			t.Errorf("control: root sees %s", got)
		}
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
	if got := p.do(t, attack); strings.HasPrefix(got, "ok") {
		t.Errorf("the peer by %s: got %s", attack, got)
	}
}
