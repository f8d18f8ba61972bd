package roottest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// named are options with the profile "named", of a network of its own with what it may connect to.
func named(t testing.TB, egress ...string) provision.Options {
	t.Helper()
	opt := attackOptions(t)
	edit(opt, "named", func(p *chat.Profile) { p.Network, p.Egress = chat.NetworkOwn, parsedAllows(t, egress...) })
	opt.DNSServers = []netip.AddrPort{netip.MustParseAddrPort(outsideAddr + ":53")}
	return opt
}

// endEgress ends chatd-egress, which outlives each chatd.
func endEgress(t testing.TB, opt provision.Options) {
	t.Helper()
	dir := filepath.Join(opt.Run, "egress")
	if b, err := os.ReadFile(filepath.Join(dir, "log")); err == nil && len(b) > 0 {
		t.Logf("chatd-egress says:\n%s", b)
	}
	signalAll(egressesOf(opt), syscall.SIGKILL)
}

// egressesOf are the processes of a world's chatd-egress: their log is open there.
func egressesOf(opt provision.Options) (pids []string) {
	out, _ := exec.Command("pgrep", "-f", "^chatd-egress ").Output()
	for _, pid := range strings.Fields(string(out)) {
		log, err := os.Readlink("/proc/" + pid + "/fd/2")
		if err == nil && strings.HasPrefix(log, opt.Run+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

var usual = []string{
	"api.example.test:443", "api.example.test:8080", "api.example.test:7000", "*.wild.example.test:7000",
	"ssh.example.test:22", "udp:api.example.test:123", "10.213.0.2:8000", "inner.example.test:7000",
	"meta.example.test:80", "self.example.test:7000", "loop.example.test:7000", "turn.example.test:7000",
	"gone.example.test:7000", "empty.example.test:7000", "udp:203.0.113.2:123",
}

// TestOwnNetwork: what a profile lists is reached, by name and by address, and nothing else is.
func TestOwnNetwork(t *testing.T) {
	out := newInternet(t)
	m := open(t, named(t, usual...))
	a := inmateOf(t, m, "own a", "named")
	for _, c := range []struct{ name, act, to, with, want string }{
		{"a name", "say", "api.example.test:7000", "hello", "ok outside heard hello"},
		{"in capitals", "say", "API.Example.TEST:7000", "hello", "ok outside heard hello"},
		{"with the root's dot", "say", "api.example.test.:7000", "hello", "ok outside heard hello"},
		{"below a star", "say", "a.b.wild.example.test:7000", "hello", "ok outside heard hello"},
		{"who speaks first", "say", "ssh.example.test:22", "hello", "ok SSH-2.0-test"},
		{"TLS", "tls", "api.example.test:443", "api.example.test", "ok outside heard over TLS"},
		{"datagrams", "say-udp", "api.example.test:123", "hello", "ok outside heard hello"},
		{"datagrams to an address", "say-udp", "203.0.113.2:123", "hello",
			"ok outside heard hello"},
		{"another port", "say", "api.example.test:22", "x", "ECONNRESET EOF EPIPE"},
		{"a listed name's address", "say", "203.0.113.2:7000", "x", "ECONNRESET EOF EPIPE"},
		{"an address that nobody has", "say", "198.18.99.99:7000", "x", "ECONNRESET EOF EPIPE"},
		{"the star itself", "say", "wild.example.test:7000", "x", "NXDOMAIN"},
		{"a name that ends alike", "say", "notwild.example.test:7000", "x", "NXDOMAIN"},
		{"a name that begins alike", "say", "api.example.test.evil.example.test:7000", "x",
			"NXDOMAIN"},
		{"unlisted", "say", "other.example.test:7000", "x", "NXDOMAIN"},
		{"of no zone", "say", "example.org:7000", "x", "NXDOMAIN"},
		{"that does not exist", "say", "gone.example.test:7000", "x", "NXDOMAIN"},
		{"without an address", "say", "empty.example.test:7000", "x", "NXDOMAIN unanswered:"},
		{"private", "say", "inner.example.test:7000", "x", "ECONNRESET EOF EPIPE"},
		{"metadata", "say", "meta.example.test:80", "x", "ECONNRESET EOF EPIPE"},
		{"this host", "say", "self.example.test:7000", "x", "ECONNRESET EOF EPIPE"},
		{"loopback", "say", "loop.example.test:7000", "x", "ECONNRESET EOF EPIPE"},
		{"a TLS name that lies", "tls", "api.example.test:443", "other.example.test",
			"ECONNRESET EOF EPIPE"},
		{"TLS without a name", "tls", "api.example.test:443", "-", "ECONNRESET EOF EPIPE"},
		{"datagrams elsewhere", "say-udp", "203.0.113.2:53", "x", "ETIMEDOUT"},
		{"the outside's DNS", "query", "203.0.113.2:53", "other.example.test 1", "ok NameError 0"},
		{"TXT", "query", "127.0.0.1:53", "api.example.test 16", "ok Refused 0"},
		{"HTTPS", "query", "127.0.0.1:53", "api.example.test 65", "ok Success 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := a.try(t, append([]string{c.act, c.to}, strings.Fields(c.with)...)...)
			if strings.HasPrefix(c.want, "ok ") {
				expect.Equal(t, got, c.want, "got")
				return
			}
			outcomes(t, "A", got, c.want)
		})
	}
	t.Run("requests of one connection", func(t *testing.T) { requestsOfOneConnection(t, a) })
	t.Run("a CIDR", func(t *testing.T) {
		outcomes(t, "A", a.try(t, "dial", "10.213.0.2:8000"), "ok")
		outcomes(t, "A", a.try(t, "dial", "10.213.0.2:9000"), "ECONNRESET EOF EPIPE")
	})
	t.Run("a name that turns private", func(t *testing.T) {
		outcomes(t, "first", a.try(t, "say", "turn.example.test:7000", "x"), "ok")
		time.Sleep(6 * time.Second) // the least time that an answer is kept
		outcomes(t, "then", a.try(t, "say", "turn.example.test:7000", "x"), "ECONNRESET EOF EPIPE")
	})
	t.Run("unlisted names are asked of nobody", func(t *testing.T) {
		before := out.asked.Load()
		for _, name := range []string{"secret.other.example.test", "x.example.org",
			"api.example.test.evil.test"} {
			outcomes(t, name, a.try(t, "lookup", name), "NXDOMAIN")
		}
		expect.Equal(t, (out.asked.Load() - before), 0, "the outside was asked … times")
	})
	t.Run("devices", func(t *testing.T) {
		expect.Equal(t, a.try(t, "devices"), "ok lo", "the chat has")
	})
}

// requestsOfOneConnection: each request has to be to the name.
func requestsOfOneConnection(t *testing.T, a inmate) {
	const good, bad = "api.example.test", "other.example.test"
	if got, want := a.try(t, "hosts", good+":8080", good,
		good+":8080"), "ok 200:"+good+" 200:"+good+":8080"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got := a.try(t, "hosts", good+":8080", good, bad, good)
	expect.True(t, strings.HasPrefix(got, "ok 200:"+good+" 421:") && !strings.Contains(got, bad+" "),
		"the second request reaches another name: %q", got)
}

// TestOwnNetworkApart: chats share nothing of it: no ports, no addresses, no names.
func TestOwnNetworkApart(t *testing.T) {
	newInternet(t)
	m := open(t, named(t, usual...))
	a, b := inmateOf(t, m, "apart a", "named"), inmateOf(t, m, "apart b", "named")
	addr := strings.Trim(strings.TrimPrefix(a.try(t, "lookup", "api.example.test", "ip4"), "ok "),
		"[]")
	outcomes(t, "A", a.try(t, "say", addr+":7000", "x"), "ok")
	outcomes(t, "B by A's address, which it was not given", b.try(t, "say", addr+":7000", "x"),
		"ECONNRESET EOF EPIPE")
	b.background(t, "port", "serve", "tcp", "[::]:0", b.in("port"))
	port := portIn(t, b.in("port"))
	for _, host := range []string{"127.0.0.1", "[::1]", "198.18.0.1", "203.0.113.1",
		"[fd63:6861:7464::1]"} {
		outcomes(t, "A to B's server at "+host, a.try(t, "dial", host+":"+port),
			refusals+" ECONNRESET EOF EPIPE")
	}
	outcomes(t, "control: B", b.try(t, "dial", "127.0.0.1:"+port), "ok")
	outcomes(t, "a process of A's uid outside its session", asUser(t, a.UID, "dial",
		"10.213.0.2:8000"), refusals)
	outcomes(t, "control: root", asHost(t, "dial", "10.213.0.2:8000"), "ok")
}

// TestOwnNetworkPort53: a listed DNS server is asked, while all others go on giving the chat's own
// names; no program of the chat takes their port.
func TestOwnNetworkPort53(t *testing.T) {
	newInternet(t)
	m := open(t, named(t, append([]string{"udp:203.0.113.2:53"}, usual...)...))
	a := inmateOf(t, m, "port 53", "named")
	for range 2 {
		for to, want := range map[string]string{"203.0.113.2:53": "ok Success 1",
			"203.0.113.3:53": "ok NameError 0", "127.0.0.1:53": "ok NameError 0"} {
			expect.Equal(t, a.try(t, "query", to, "other.example.test", "1"), want, "%s", to)
		}
		outcomes(t, "a name", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	}
	for _, at := range []string{"0.0.0.0:53", "198.18.0.1:53", "203.0.113.2:53", "[::1]:53"} {
		outcomes(t, "bind "+at, a.try(t, "serve", "tcp", at, a.in("port")), "EACCES")
	}
}

// TestOwnNetworkEgressKilled: after a kill -9 of chatd-egress new connections work, and the names
// keep their addresses.
func TestOwnNetworkEgressKilled(t *testing.T) {
	newInternet(t)
	opt := named(t, usual...)
	m := open(t, opt)
	a := inmateOf(t, m, "killed", "named")
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	addrs := a.try(t, "lookup", "api.example.test")
	outcomes(t, "another name", a.try(t, "lookup", "ssh.example.test"), "ok")
	for range 3 {
		killed := egressesOf(opt)
		must.True(t, len(killed) == 1, "chatd-egress is %v", killed)
		signalAll(killed, syscall.SIGKILL)
		outcomes(t, "after", a.try(t, "say", "api.example.test:7000", "x"), "ok")
		got := a.try(t, "lookup", "api.example.test")
		expect.True(t, got == addrs, "the name is %s, and was %s", got, addrs)
	}
}

// TestOwnNetworkRootRestarts: chatd-root ends and comes back, and an open connection goes on.
func TestOwnNetworkRootRestarts(t *testing.T) {
	newInternet(t)
	opt := named(t, usual...)
	m := open(t, opt)
	a := inmateOf(t, m, "restarts", "named")
	a.sh(t, "mkfifo in")
	startRun(t, m, a.ID, chat.RunSpec{Argv: []string{"bash", "-c",
		"exec 3<>/dev/tcp/api.example.test/7000; touch connected; cat in >&3; cat <&3 >answer"}})
	until(t, "the connection stands", exists(a.in("connected")))
	m.restart(t, opt)
	run(t, m, a.ID, `echo still there > in`)
	until(t, "the answer comes", func() bool {
		return text(a.in("answer")) == "outside heard still there\n"
	})
	outcomes(t, "a new one", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	outcomes(t, "a new name", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
}

// TestOwnNetworkEnds: nothing of a chat's network outlives its session.
func TestOwnNetworkEnds(t *testing.T) {
	newInternet(t)
	opt := named(t, usual...)
	m := open(t, opt)
	a := inmateOf(t, m, "ends", "named")
	outcomes(t, "awake", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	pid := egressesOf(opt)[0]
	limits := must.Get(os.ReadFile("/proc/" + pid + "/limits"))(t)
	for _, want := range []string{"Max file size 2097152 2097152 bytes",
		"Max core file size 0 0 bytes"} {
		expect.True(t, strings.Contains(strings.Join(strings.Fields(string(limits)), " "), want),
			"chatd-egress has not %s", want)
	}
	ns := must.Get(os.Readlink("/proc/" + fmt.Sprint(pidsOf(a.UID)[0]) + "/ns/net"))(t)
	must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
	names, err := filepath.Glob(filepath.Join(opt.Run, "egress", "names-*"))
	expect.True(t, err == nil && len(names) == 0, "%v is left, %v", names, err)
	for _, who := range []string{"self", pid} {
		fds, _ := filepath.Glob("/proc/" + who + "/fd/*")
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			expect.True(t, to != ns && !strings.Contains(to, "names-"), "%s holds %s", who, to)
		}
	}
	must.Get(m.Wake(operator(t.Context()), a.ID))(t)
	outcomes(t, "awake again", a.try(t, "say", "api.example.test:7000", "x"), "ok")
}
