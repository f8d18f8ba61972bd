package netpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func allow(t testing.TB, s string) chat.Allow {
	t.Helper()
	return must.Get(chat.ParseAllow(s))(t)
}

// testPolicy is what A and B have: one public and one private address, and one service of the host.
func testPolicy(t testing.TB, hostPort int) []Policy {
	var egress []chat.Allow
	for _, s := range []string{"203.0.113.5:8000", "10.99.0.2:8000", "udp:203.0.113.5:8001", fmt.Sprintf("127.0.0.1:%d", hostPort),
		"[2001:db8:1::5]:8000", "[fd00:99::2]:8000", "udp:[2001:db8:1::5]:8001", fmt.Sprintf("[::1]:%d", hostPort)} {
		egress = append(egress, allow(t, s))
	}
	return []Policy{{Profile: "default", Blocks: []Range{{rangeLow, rangeLow + 3*65536 - 1}}, Egress: egress}}
}

// try is one line of the table: a connection's user, target and protocol, and the expected outcome.
type try struct {
	name  string
	from  *place
	uid   uint32
	host  string
	port  int
	proto string
	want  string // "refused|silent" means either
}

// stage holds the servers that the table of tries asks.
type stage struct {
	out                               *place
	a, b, root, user, guarded, opened *server
	aUDP, bUDP                        *server
}

func newStage(t testing.TB) *stage {
	out := outside(t)
	for _, h := range []string{"203.0.113.5", "203.0.113.6", "10.99.0.2", "169.254.169.254", "192.0.2.1",
		"2001:db8:1::5", "2001:db8:1::6", "fd00:99::2", "fd00:ec2::254"} {
		serve(t, out, 0, h, 8000, "tcp")
		serve(t, out, 0, h, 8001, "udp")
		serve(t, out, 0, h, 8002, "udp")
	}
	return &stage{out: out,
		a: serve(t, nil, uidA, "::", 0, "tcp"), b: serve(t, nil, uidB, "::", 0, "tcp"),
		root: serve(t, nil, 0, "::", 0, "tcp"), guarded: serve(t, nil, 0, "::", 0, "tcp"), user: serve(t, nil, uidHost, "::", 0, "tcp"), opened: serve(t, nil, 0, "::", 0, "tcp"),
		aUDP: serve(t, nil, uidA, "::", 0, "udp"), bUDP: serve(t, nil, uidB, "::", 0, "udp")}
}

func (s *stage) loopbackTries() []try {
	var all []try
	for _, h := range []string{"127.0.0.1", "127.0.0.2", "127.99.1.1", "0.0.0.0", "::ffff:127.0.0.1", "::1", "::",
		"203.0.113.1", "10.99.0.1", "2001:db8:1::1", "fd00:99::1"} {
		for _, p := range []string{"tcp", "mptcp"} {
			all = append(all,
				try{"A to its own", nil, uidA, h, s.a.port, p, "refused"},
				try{"A to B", nil, uidA, h, s.b.port, p, "refused"},
				try{"A to root", nil, uidA, h, s.guarded.port, p, "refused"})
		}
		all = append(all,
			try{"A to a user", nil, uidA, h, s.user.port, "tcp", "refused"},
			try{"root to B", nil, 0, h, s.b.port, "tcp", "refused|silent"},
			try{"user to B", nil, uidHost, h, s.b.port, "tcp", "refused|silent"},
			try{"root to root", nil, 0, h, s.root.port, "tcp", "answered"},
			try{"user to root", nil, uidHost, h, s.root.port, "tcp", "answered"},
			try{"A to a closed port", nil, uidA, h, 1, "tcp", "refused"},
			try{"A to B by UDP", nil, uidA, h, s.bUDP.port, "udp", "refused"},
			try{"A to its own by UDP", nil, uidA, h, s.aUDP.port, "udp", "refused"},
			try{"uid without policy to A", nil, uidNone, h, s.a.port, "tcp", "refused"})
	}
	return append(all,
		try{"A to an opened service", nil, uidA, "127.0.0.1", s.opened.port, "tcp", "answered"},
		try{"A to an opened service", nil, uidA, "::1", s.opened.port, "tcp", "answered"},
		try{"A to another address of an opened service", nil, uidA, "127.0.0.2", s.opened.port, "tcp", "refused"},
		try{"uid without policy to an opened service", nil, uidNone, "127.0.0.1", s.opened.port, "tcp", "refused"},
		try{"A pings", nil, uidA, "127.0.0.1", 0, "icmp", "refused"})
}

func (s *stage) outsideTries() []try {
	var all []try
	for _, h := range []string{"203.0.113.5", "10.99.0.2", "2001:db8:1::5", "fd00:99::2"} {
		all = append(all,
			try{"A to a listed address", nil, uidA, h, 8000, "tcp", "answered"},
			try{"uid without policy", nil, uidNone, h, 8000, "tcp", "refused"},
			try{"probe uid", nil, probeUID, h, 8000, "tcp", "refused"},
			try{"A to another port", nil, uidA, h, 8003, "tcp", "refused"})
	}
	for _, h := range []string{"203.0.113.6", "169.254.169.254", "192.0.2.1", "2001:db8:1::6", "fd00:ec2::254"} {
		all = append(all,
			try{"A to an unlisted address", nil, uidA, h, 8000, "tcp", "refused"},
			try{"A to an unlisted address", nil, uidA, h, 8001, "udp", "refused"},
			try{"root to anywhere", nil, 0, h, 8000, "tcp", "answered"})
	}
	for _, h := range []string{"203.0.113.5", "2001:db8:1::5"} {
		all = append(all,
			try{"A by listed UDP", nil, uidA, h, 8001, "udp", "answered"},
			try{"A by unlisted UDP", nil, uidA, h, 8002, "udp", "refused"},
			try{"A pings", nil, uidA, h, 0, "icmp", "refused|silent"})
	}
	for _, h := range []string{"203.0.113.1", "2001:db8:1::1"} {
		all = append(all,
			try{"world to A", s.out, 0, h, s.a.port, "tcp", "refused|silent"},
			try{"world to A by UDP", s.out, 0, h, s.aUDP.port, "udp", "refused|silent"},
			try{"world to root", s.out, 0, h, s.root.port, "tcp", "answered"})
	}
	return all
}

// failures runs tries and says which did not come out as they must.
func failures(all []try) []string {
	var bad []string
	results := make([]string, len(all))
	done := make(chan struct{})
	lanes := make(chan int)
	for range 12 {
		go func() {
			for i := range lanes {
				results[i] = ask(all[i].from, all[i].uid, all[i].host, all[i].port, all[i].proto)
			}
			done <- struct{}{}
		}()
	}
	for i := range all {
		lanes <- i
	}
	close(lanes)
	for range 12 {
		<-done
	}
	for i, x := range all {
		if !strings.Contains("|"+x.want+"|", "|"+results[i]+"|") {
			bad = append(bad, fmt.Sprintf("%s, %s port %d by %s: %s, want %s", x.name, x.host, x.port, x.proto, results[i], x.want))
		}
	}
	return bad
}

func TestWall(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		table, s := newTable(t, set), newStage(t)
		policies := testPolicy(t, s.opened.port)
		must.Do(t, table.Apply(t.Context(), policies))
		all := append(s.loopbackTries(), s.outsideTries()...)
		for _, f := range failures(all) {
			t.Error(f)
		}
		for who, srv := range map[string]*server{"B": s.b, "B's UDP": s.bUDP, "root": s.guarded} {
			expect.Equal(t, srv.heard(), "", "%s heard", who)
		}
		t.Logf("%d probes", len(all))
	})
}

// Without rules, and with one rule broken, the same tries must come out
// otherwise, or they prove nothing.
func TestTriesCanFail(t *testing.T) {
	table, s := newTable(t, hostTools), newStage(t)
	all := append(s.loopbackTries(), s.outsideTries()...)
	refusals := 0
	for _, x := range all {
		if x.want != "answered" && x.name != "A to a closed port" {
			refusals++
		}
	}
	none := failures(all)
	// Some addresses do not answer UDP or pings at all; the rest must get through.
	expect.True(t, len(none) >= refusals*9/10,
		"without rules %d of %d refusals did not happen", len(none), refusals)
	wide := testPolicy(t, s.opened.port)
	wide[0].Egress = append(wide[0].Egress, allow(t, "203.0.113.5:1-65535"))
	for _, m := range []struct{ name, line, want string }{
		{"jump gone", "iptables -D OUTPUT 1", "A to an unlisted address, 203.0.113.6"},
		{"IPv6 jump gone", "ip6tables -D OUTPUT 1", "A to an unlisted address, 2001:db8:1::6"},
		{"state accepted", "iptables -I CHATD 1 -m conntrack --ctstate ESTABLISHED -j ACCEPT", "world to A, 203.0.113.1"},
		{"direction not asked", "iptables -R CHATD 1 -j CHATD-WHO", "world to A, 203.0.113.1"},
		{"loopback accepted", "iptables -I CHATD 1 -o lo -j ACCEPT", "A to B by UDP, 127.0.0.1"},
	} {
		t.Run(m.name, func(t *testing.T) {
			must.Do(t, table.Apply(t.Context(), wide))
			run(t, m.line)
			about := func(x try) bool { return strings.HasPrefix(x.name+", "+x.host+" ", m.want+" ") }
			found := failures(slices.DeleteFunc(slices.Clone(all), func(x try) bool { return !about(x) }))
			expect.True(t, len(found) != 0, "no try noticed it; want %q", m.want)
			drift, err := table.Drift()
			expect.True(t, err == nil && len(drift) != 0, "Drift did not notice it: %q, %v", drift, err)
			t.Logf("%q; first of %d: %s", drift, len(found), strings.Join(found[:min(1, len(found))], ""))
		})
	}
}
