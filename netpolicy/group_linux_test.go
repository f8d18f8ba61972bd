package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// carrierGID is the gid of the sockets that the tests make as chatd-root does.
const carrierGID = 61997

// groupTry is one line of the table: the gid of the socket, and where it goes. Gid 0 is a process
// of the chat's uid, which makes its socket itself.
type groupTry struct {
	name  string
	gid   uint32
	host  string
	port  int
	proto string
	want  string
}

func (x groupTry) failure() string {
	got := ""
	if x.gid == 0 {
		got = ask(nil, uidA, x.host, x.port, x.proto)
	} else {
		got = askOf(uidA, x.gid, x.host, x.port, x.proto)
	}
	if got == x.want {
		return ""
	}
	to := fmt.Sprintf("%s port %d by %s", x.host, x.port, x.proto)
	return fmt.Sprintf("%s, %s: %s, want %s", x.name, to, got, x.want)
}

// askOf is [ask], over a socket that root makes for uid and gid.
func askOf(uid, gid uint32, host string, port int, proto string) string {
	makes := func(addr netip.Addr, proto string) (int, error) {
		domain, kind := unix.AF_INET6, unix.SOCK_STREAM
		if addr.Is4() {
			domain = unix.AF_INET
		}
		if proto == "udp" {
			kind = unix.SOCK_DGRAM
		}
		fd, err := sys.SocketOf(uid, gid, domain, kind)
		if err == nil {
			patient(fd, 4*time.Second)
			err = unix.SetNonblock(fd, false)
		}
		return fd, err
	}
	return outcome(talkTo(netip.MustParseAddr(host), port, proto, makes))
}

func groupPolicy(t testing.TB, hostPort int) []Policy {
	p := Policy{Profile: "own", GID: carrierGID, Blocks: []Range{{rangeLow, rangeHigh}}}
	for _, s := range []string{"10.99.0.0/24:8000", "api.example.com:8000", "*.example.com:8000",
		"udp:api.example.com:8001",
		fmt.Sprintf("127.0.0.1:%d", hostPort), fmt.Sprintf("[::1]:%d", hostPort)} {
		p.Egress = append(p.Egress, allow(t, s))
	}
	// One chat got them under a wide entry: 203.0.113.1 and 10.99.0.1 are this host's.
	for _, s := range []string{"203.0.113.1:8000", "[2001:db8:1::1]:8000", "10.99.0.1:8001"} {
		p.Egress = append(p.Egress, allow(t, s))
		p.Outside = append(p.Outside, allow(t, s))
	}
	return []Policy{p}
}

func (s groupStage) groupTries() []groupTry {
	const gid = carrierGID
	open, shut := s.opened.port, s.guarded.port
	opened := []groupTry{
		{"the listed network", gid, "10.99.0.2", 8000, "tcp", "answered"},
		{"a public address", gid, "203.0.113.5", 8000, "tcp", "answered"},
		{"a public address", gid, "2001:db8:1::6", 8000, "tcp", "answered"},
		{"a public address by UDP", gid, "203.0.113.6", 8001, "udp", "answered"},
		{"a public address by UDP", gid, "2001:db8:1::5", 8001, "udp", "answered"},
		{"a service of the host", gid, "127.0.0.1", open, "tcp", "answered"},
		{"a service of the host", gid, "::1", open, "tcp", "answered"},
	}
	others := map[string]uint32{"without the gid": 0, "with another gid": gid + 1}
	all := slices.Clone(opened)
	for _, x := range opened {
		for who, other := range others {
			name := who + ", " + x.name
			all = append(all, groupTry{name, other, x.host, x.port, x.proto, "refused"})
		}
	}
	return append(all,
		groupTry{"another port", gid, "203.0.113.5", 8002, "udp", "refused"},
		groupTry{"a name's UDP port by TCP", gid, "203.0.113.5", 8001, "tcp", "refused"},
		groupTry{"another port of the network", gid, "10.99.0.2", 8001, "udp", "refused"},
		groupTry{"a private address", gid, "fd00:99::2", 8000, "tcp", "refused"},
		groupTry{"a metadata address", gid, "169.254.169.254", 8000, "tcp", "refused"},
		groupTry{"a metadata address", gid, "fd00:ec2::254", 8000, "tcp", "refused"},
		groupTry{"the host's address", gid, "203.0.113.1", 8000, "tcp", "refused"},
		groupTry{"the host's address", gid, "2001:db8:1::1", 8000, "tcp", "refused"},
		groupTry{"another service of the host", gid, "127.0.0.1", shut, "tcp", "refused"})
}

func groupFailures(all []groupTry) (bad []string) {
	for _, x := range all {
		if f := x.failure(); f != "" {
			bad = append(bad, f)
		}
	}
	return bad
}

// TestGroup: with a policy's gid a uid reaches what is listed, and without it nothing.
func TestGroup(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table, s := newTable(t, set), newGroupStage(t)
		policies := groupPolicy(t, s.opened.port)
		must.Do(t, table.Apply(t.Context(), policies))
		if drift, err := table.Drift(); err != nil || len(drift) > 0 {
			t.Errorf("drift: %q, %v", drift, err)
		}
		for _, f := range groupFailures(s.groupTries()) {
			t.Error(f)
		}
	})
}

// TestGroupTriesCanFail breaks one rule at a time: some try, and Drift, must notice it.
func TestGroupTriesCanFail(t *testing.T) {
	table, s := newTable(t, hostTools), newGroupStage(t)
	for _, m := range []struct{ name, line, want string }{
		{"gid not asked", "iptables -D CHATD-P0 1", "without the gid, the listed network"},
		{"gid not asked by IPv6", "ip6tables -D CHATD-P0 1", "with another gid, a public address"},
		{"private not refused", "ip6tables -F CHATD-DENY", "a private address"},
		{"metadata not refused", "iptables -F CHATD-META; iptables -F CHATD-DENY",
			"a metadata address"},
		{"names not opened", "iptables -D CHATD-P0 8", "a public address"},
		{"lo not left out", "iptables -A CHATD-P0 -d 203.0.113.1 -p tcp --dport 8000 -j ACCEPT",
			"the host's address"},
	} {
		t.Run(m.name, func(t *testing.T) {
			must.Do(t, table.Apply(t.Context(), groupPolicy(t, s.opened.port)))
			run(t, m.line)
			drift, err := table.Drift()
			expect.True(t, err == nil && len(drift) != 0, "Drift did not notice it: %q, %v", drift, err)
			found := groupFailures(slices.DeleteFunc(s.groupTries(), func(x groupTry) bool {
				return !strings.HasPrefix(x.name, m.want)
			}))
			expect.True(t, len(found) != 0, "no try noticed it; want %q", m.want)
		})
	}
}

// groupStage has a service of the host on port 8000, which a name opens, too.
type groupStage struct{ *stage }

func newGroupStage(t testing.TB) groupStage {
	serve(t, nil, 0, "::", 8000, "tcp")
	return groupStage{newStage(t)}
}
