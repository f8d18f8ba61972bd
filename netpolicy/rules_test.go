package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var pureOptions = Options{Range: Range{1000, 99999}, ProbeUID: 99999}

func mustAllow(t testing.TB, s string) chat.Allow {
	t.Helper()
	return must.Get(chat.ParseAllow(s))(t)
}

func manyPolicies(t testing.TB, n int) []Policy {
	var all []Policy
	for i := range n {
		all = append(all, Policy{Profile: fmt.Sprintf("p%d", i), Blocks: []Range{{1879048192 + uint32(2*i)*65536, 1879048192 + uint32(2*i+1)*65536 - 1}},
			Egress: []chat.Allow{mustAllow(t, "203.0.113.5:8000"), mustAllow(t, "udp:203.0.113.5:8001")}})
	}
	return all
}

func TestFlatten(t *testing.T) {
	block := func(b ...Range) Policy { return Policy{Blocks: b} }
	for _, x := range []struct {
		name string
		in   []Policy
		want []segment
	}{
		{"none", nil, nil},
		{"exception in a block", []Policy{block(Range{1005, 1005}), block(Range{1000, 1009})},
			[]segment{{Range{1000, 1004}, 1}, {Range{1005, 1005}, 0}, {Range{1006, 1009}, 1}}},
		{"neighbours are one", []Policy{block(Range{1010, 1019}, Range{1000, 1009})}, []segment{{Range{1000, 1019}, 0}}},
		{"the probe has none", []Policy{block(Range{99990, 99999})}, []segment{{Range{99990, 99998}, 0}}},
		{"the first wins whole", []Policy{block(Range{1000, 1009}), block(Range{1002, 1004})}, []segment{{Range{1000, 1009}, 0}}},
		{"around several", []Policy{block(Range{1002, 1003}, Range{1006, 1006}), block(Range{1000, 1009})},
			[]segment{{Range{1000, 1001}, 1}, {Range{1002, 1003}, 0}, {Range{1004, 1005}, 1}, {Range{1006, 1006}, 0}, {Range{1007, 1009}, 1}}},
	} {
		got := flatten(pureOptions, x.in)
		expect.True(t, slices.Equal(got, x.want), "%s: %v, want %v", x.name, got, x.want)
	}
}

// FuzzFlatten compares the segments with the definition: the first policy that
// has a block with the uid.
func FuzzFlatten(f *testing.F) {
	f.Add([]byte{0, 9, 3, 5, 7, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		o := Options{Range: Range{1, 300}, ProbeUID: 100}
		var all []Policy
		for ; len(b) >= 3; b = b[3:] {
			low := 1 + uint32(b[0])
			block := Range{low, min(low+uint32(b[1])%40, 300)}
			if b[2]%2 == 0 && len(all) > 0 {
				all[len(all)-1].Blocks = append(all[len(all)-1].Blocks, block)
				continue
			}
			all = append(all, Policy{Profile: "p", Blocks: []Range{block}})
		}
		segments := flatten(o, all)
		for uid := uint32(0); uid < 310; uid++ {
			want := slices.IndexFunc(all, func(p Policy) bool {
				return slices.ContainsFunc(p.Blocks, func(r Range) bool { return r.Contains(uid) })
			})
			if uid == o.ProbeUID {
				want = -1
			}
			if got := policyOf(t, segments, uid); got != want {
				t.Fatalf("uid %d has policy %d, want %d: %v of %v", uid, got, want, segments, all)
			}
			got := walk(t, treeRules(segments, all), uid)
			must.True(t, got == want, "uid %d walks to policy %d, want %d", uid, got, want)
		}
	})
}

func policyOf(t *testing.T, segments []segment, uid uint32) int {
	found := -1
	for _, s := range segments {
		if s.Contains(uid) {
			must.True(t, found < 0, "uid %d is in two segments: %v", uid, segments)
			found = s.policy
		}
	}
	return found
}

// walk follows the rules of the tree as the kernel would.
func walk(t *testing.T, rules []string, uid uint32) int {
	chain := "CHATD-WHO"
	for steps := 0; ; steps++ {
		next := ""
		seen := 0
		for _, r := range rules {
			var low, high uint32
			w := strings.Fields(r)
			if w[1] != chain {
				continue
			}
			if seen++; seen > fanOut {
				t.Fatalf("chain %s has more than %d rules", chain, fanOut)
			}
			must.Get(fmt.Sscanf(w[5], "%d-%d", &low, &high))(t)
			if low <= uid && uid <= high {
				next = w[len(w)-1]
				break
			}
		}
		var policy int
		if _, err := fmt.Sscanf(next, "CHATD-P%d", &policy); err == nil {
			return policy
		}
		if next == "" || steps > 8 {
			return -1
		}
		chain = next
	}
}

func TestSortAllows(t *testing.T) {
	for s, want := range map[string]string{
		"169.254.169.254:80": "exact", "169.254.0.0/16:80": "narrow", "10.0.0.0/8:80": "narrow", "203.0.113.0/24:80": "narrow", "8.0.0.0/6:80": "wide",
		"0.0.0.0/0:443": "wide", "0.0.0.0/1:443": "wide", "10.1.2.3:80": "exact", "[::1]:80": "exact", "[fc00::/7]:80": "narrow", "[::/0]:443": "wide",
		"[2000::/3]:443": "wide", "[2001:db8::/32]:443": "narrow",
	} {
		a := mustAllow(t, s)
		f := ipv4
		if a.Prefix.Addr().Is6() {
			f = ipv6
		}
		exact, narrow, wide := sortAllows(f, Policy{Egress: []chat.Allow{a}})
		got := map[int]string{len(exact): "exact", len(narrow): "narrow", len(wide): "wide"}[1]
		expect.Equal(t, got, want, "%s", s)
	}
}

func TestPolicyOrder(t *testing.T) {
	p := Policy{Profile: "p", Egress: []chat.Allow{
		mustAllow(t, "0.0.0.0/0:443"), mustAllow(t, "10.0.0.0/8:80-81"), mustAllow(t, "udp:192.0.2.7:9"), mustAllow(t, "[2001:db8::1]:5")}}
	want := []string{
		"-A CHATD-P3 -d 192.0.2.7/32 -p udp -m udp --dport 9 -j ACCEPT", "-A CHATD-P3 -j CHATD-META",
		"-A CHATD-P3 -d 10.0.0.0/8 -p tcp -m tcp --dport 80:81 -j ACCEPT", "-A CHATD-P3 -j CHATD-DENY",
		"-A CHATD-P3 ! -o lo -d 0.0.0.0/0 -p tcp -m tcp --dport 443 -j ACCEPT",
	}
	got := policyRules(ipv4, "CHATD-P3", p)
	expect.True(t, slices.Equal(got, want), "got\n%s", strings.Join(got, "\n"))
	got = policyRules(ipv6, "CHATD-P3", p)
	expect.True(t, len(got) == 1, "IPv6 got\n%s", strings.Join(got, "\n"))
	p.Outside = []chat.Allow{p.Egress[1], p.Egress[2]}
	want[0] = strings.Replace(want[0], "CHATD-P3 ", "CHATD-P3 ! -o lo ", 1)
	want[2] = strings.Replace(want[2], "CHATD-P3 ", "CHATD-P3 ! -o lo ", 1)
	got = policyRules(ipv4, "CHATD-P3", p)
	expect.True(t, slices.Equal(got, want), "only outside, got\n%s", strings.Join(got, "\n"))
}

// TestNamedPolicy: a name opens its ports on every public address of both families, once for each
// ports and protocol, and the group of the socket is asked first.
func TestNamedPolicy(t *testing.T) {
	p := Policy{Profile: "p", GID: 997}
	for _, s := range []string{"a.example.com:443", "*.example.com:443", "0.0.0.0/0:443",
		"10.0.0.5:22", "udp:a.example.com:443", "nosni:c.example.com:443", "b.example.com:8000-8001", "192.168.0.0/16:443"} {
		p.Egress = append(p.Egress, mustAllow(t, s))
	}
	for name, want := range map[string][]string{
		ipv4.name: {
			"-A C -m owner ! --gid-owner 997 -j CHATD-NO",
			"-A C -d 10.0.0.5/32 -p tcp -m tcp --dport 22 -j ACCEPT",
			"-A C -j CHATD-META",
			"-A C -d 192.168.0.0/16 -p tcp -m tcp --dport 443 -j ACCEPT",
			"-A C -j CHATD-DENY",
			"-A C ! -o lo -d 0.0.0.0/0 -p tcp -m tcp --dport 443 -j ACCEPT",
			"-A C ! -o lo -d 0.0.0.0/0 -p udp -m udp --dport 443 -j ACCEPT",
			"-A C ! -o lo -d 0.0.0.0/0 -p tcp -m tcp --dport 8000:8001 -j ACCEPT",
		},
		ipv6.name: {
			"-A C -m owner ! --gid-owner 997 -j CHATD-NO",
			"-A C -j CHATD-META",
			"-A C -j CHATD-DENY",
			"-A C ! -o lo -d ::/0 -p tcp -m tcp --dport 443 -j ACCEPT",
			"-A C ! -o lo -d ::/0 -p udp -m udp --dport 443 -j ACCEPT",
			"-A C ! -o lo -d ::/0 -p tcp -m tcp --dport 8000:8001 -j ACCEPT",
		},
	} {
		f := map[string]family{ipv4.name: ipv4, ipv6.name: ipv6}[name]
		if got := policyRules(f, "C", p); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s", name, strings.Join(got, "\n"))
		}
	}
	expect.NoError(t, check(pureOptions, []Policy{p}))
	nothing := Policy{Profile: "p", GID: 997}
	got := policyRules(ipv4, "C", nothing)
	expect.True(t, len(got) == 1 && strings.Contains(got[0], "! --gid-owner 997"),
		"without egress: %q", got)
}

// TestFamilies: what package chat calls special, and of metadata services, is refused to a wide
// allow, each in its family.
func TestFamilies(t *testing.T) {
	metadata, denied := len(ipv4.metadata)+len(ipv6.metadata), len(ipv4.denied)+len(ipv6.denied)
	expect.True(t, metadata == len(chat.MetadataAddrs()) && denied == len(chat.SpecialPrefixes()),
		"%d metadata addresses and %d special networks are refused", metadata, denied)
	for _, f := range []family{ipv4, ipv6} {
		text := strings.Join(baseRules(f), "\n") + "\n"
		for _, p := range slices.Concat(f.metadata, f.denied) {
			is4, rule := p.Addr().Is4(), " -d "+p.String()+" -j CHATD-NO\n"
			expect.True(t, is4 == (f.name == ipv4.name) && strings.Contains(text, rule),
				"%s: %s is not refused, or of the other family", f.name, p)
		}
	}
}

// No rule may accept what it has not asked the destination of.
func TestEveryAcceptIsNarrow(t *testing.T) {
	text := restoreText(ipv4, manyPolicies(t, 40), flatten(Options{Range: Range{1, 4e9}, ProbeUID: 1}, manyPolicies(t, 40)), []string{"CHATD-OLD"})
	for line := range strings.Lines(text) {
		if strings.Contains(line, "-j ACCEPT") && !strings.Contains(line, " -d ") {
			t.Errorf("accepts too much: %s", line)
		}
		expect.True(t, !strings.Contains(line, "ESTABLISHED"), "accepts by state: %s", line)
	}
}

func TestCheckRefuses(t *testing.T) {
	good := Policy{Profile: "p", Blocks: []Range{{1000, 1001}}}
	for name, change := range map[string]func(*Policy){
		"name with a newline": func(p *Policy) { p.Profile = "x\n-A OUTPUT -j ACCEPT" },
		"no name":             func(p *Policy) { p.Profile = "" },
		"block outside":       func(p *Policy) { p.Blocks = []Range{{0, 5}} },
		"block backwards":     func(p *Policy) { p.Blocks = []Range{{1005, 1001}} },
		"zero allow":          func(p *Policy) { p.Egress = []chat.Allow{{}} },
		"gid of nobody":       func(p *Policy) { p.GID = ^uint32(0) },
		"all names":           func(p *Policy) { p.Egress = []chat.Allow{{Host: "*", Low: 1, High: 1}} },
		"name with a newline in egress": func(p *Policy) {
			p.Egress = []chat.Allow{{Host: "a.example\n-A OUTPUT -j ACCEPT", Low: 1, High: 1}}
		},
		"name without a port": func(p *Policy) { p.Egress = []chat.Allow{{Host: "a.example"}} },
		"name with an address": func(p *Policy) {
			all := netip.MustParsePrefix("10.0.0.0/8")
			p.Egress = []chat.Allow{{Host: "a.example", Prefix: all, Low: 1, High: 1}}
		},
		"mapped allow": func(p *Policy) {
			p.Egress = []chat.Allow{{Prefix: netip.MustParsePrefix("::ffff:1.2.3.4/128"), Low: 1, High: 1}}
		},
	} {
		p := good
		change(&p)
		err := check(pureOptions, []Policy{p})
		expect.True(t, errors.Is(err, chat.ErrInvalid) && strings.HasPrefix(err.Error(), "cannot "), "%s: %v", name, err)
	}
	expect.NoError(t, check(pureOptions, []Policy{good}))
}
