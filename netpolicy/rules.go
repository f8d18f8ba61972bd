package netpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Range is a run of user ids, both ends included.
type Range struct{ Low, High uint32 }

// String is the form that the owner match reads (iptables-extensions(8)).
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.Low, r.High) }

// Contains reports whether uid lies in the range.
func (r Range) Contains(uid uint32) bool { return r.Low <= uid && uid <= r.High }

// Policy is where the uids of some blocks may connect.
type Policy struct {
	// Profile is the name operators see beside the rules; the form of [chat.CheckName].
	Profile string
	// Blocks are the uids it holds for. Where blocks of two policies meet, the
	// policy that stands first in the list wins: put a chat's exception before
	// its profile.
	Blocks []Range
	// Egress lists destinations; empty means nowhere.
	Egress []chat.Allow
	// Resolvers may be asked on port 53, by UDP and TCP, also on loopback.
	Resolvers []netip.Addr
}

// chainPrefix begins the name of every chain that chatd owns.
const chainPrefix = "CHATD"

// whoChain is where the chain of a packet's policy is found.
const whoChain = "CHATD-WHO"

// packetMark is what the nft table puts on a loopback packet it has checked. The
// filter rules accept loopback by this mark alone, so that a missing nft table
// closes loopback instead of opening it. Setting a mark takes CAP_NET_ADMIN or
// CAP_NET_RAW (socket(7), SO_MARK); a chat has neither.
const packetMark = 0xc4a7d001

// heardMark is what the nft table puts on the first packet of a flow of a uid that has
// lines left in the kernel's log. It allows nothing.
const heardMark = 0xc4a7d002

// Lines of the kernel's log about refused packets: of one uid a burst, and then so many a
// minute, counted by new flows, of which each costs one, refused or not. So no uid takes
// another's. All together have allLines a minute; and for uids that have none left there are
// restLines, which they share.
const (
	uidLines, uidBurst   = 5, 20
	allLines, allBurst   = 100, 200
	restLines, restBurst = 5, 20
)

// family is what differs between iptables and ip6tables.
type family struct {
	name string
	// whole stands in go-iptables where List wants a chain: an option without effect
	// (iptables(8)), so that -S prints every chain. The library has no call for that.
	whole    string
	prohibit string
	metadata []string
	denied   []string
}

// ipv4 and ipv6 list what a wide allow (0.0.0.0/0) does not mean. Metadata
// services are reached only by an allow that names exactly that address: AWS,
// GCP, Azure, Oracle, Alibaba and their like hand out credentials there.
var (
	ipv4 = family{
		name: "IPv4", whole: "--ipv4", prohibit: "icmp-admin-prohibited",
		metadata: []string{"169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"},
		denied: []string{"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
			"192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"},
	}
	ipv6 = family{
		name: "IPv6", whole: "--ipv6", prohibit: "icmp6-adm-prohibited",
		metadata: []string{"fd00:ec2::254/128", "fd20:ce::254/128"},
		denied: []string{"::/96", "::ffff:0.0.0.0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32",
			"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"},
	}
)

// restoreText is the whole content of chatd's chains for one family, as
// iptables-restore(8) reads it. Each ":CHAIN" line empties that chain in the
// same transaction that fills it again, so no packet sees a half-written wall.
func restoreText(f family, policies []Policy, segments []segment, stale []string) string {
	rules := append(baseRules(f), treeRules(segments, policies)...)
	for i, p := range policies {
		rules = append(rules, policyRules(f, chainOf(i), p)...)
	}
	return transaction(chainsOf(rules, policies), rules, stale)
}

// baseRules are what the wall has whatever the policies are. Without anything
// in CHATD-WHO, they are the wall that allows nothing.
func baseRules(f family) []string {
	var rules []string
	add := func(chain, format string, args ...any) {
		rules = append(rules, "-A "+chain+" "+fmt.Sprintf(format, args...))
	}
	add(chainPrefix, "-o lo -m mark --mark %#x -j ACCEPT", uint32(packetMark))
	// Only packets of flows the chat itself began reach the allows. Replies of
	// its listeners, and packets that conntrack does not track, fall through.
	add(chainPrefix, "-m conntrack --ctdir ORIGINAL -j "+whoChain)
	add(chainPrefix, "-j CHATD-NO")
	for _, d := range f.metadata {
		add("CHATD-META", "-d %s -j CHATD-NO", d)
	}
	for _, d := range f.denied {
		add("CHATD-DENY", "-d %s -j CHATD-NO", d)
	}
	return append(rules, refusal(f)...)
}

// refusal is the end of every refused packet. An INVALID one is dropped in
// silence: a reset would kill a good connection for one late packet.
func refusal(f family) []string {
	const log = `-A CHATD-NO -m mark %s--mark %#x -m limit --limit %d/min --limit-burst %d -j LOG --log-prefix "chatd refused " --log-uid`
	return []string{
		"-A CHATD-NO -m conntrack --ctstate INVALID -j DROP",
		fmt.Sprintf(log, "", uint32(heardMark), allLines, allBurst),
		fmt.Sprintf(log, "! ", uint32(heardMark), restLines, restBurst),
		"-A CHATD-NO -p tcp -j REJECT --reject-with tcp-reset",
		"-A CHATD-NO -j REJECT --reject-with " + f.prohibit,
	}
}

// transaction joins chains and rules to one restore text. Stale chains are
// emptied with the others and deleted after nothing names them any more.
func transaction(chains, rules, stale []string) string {
	var b strings.Builder
	b.WriteString("*filter\n")
	for _, c := range slices.Concat(chains, stale) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	for _, r := range rules {
		b.WriteString(r + "\n")
	}
	for _, c := range stale {
		fmt.Fprintf(&b, "-X %s\n", c)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// chainsOf lists the chains of a text: those that hold rules, and those of
// policies and of the tree that hold none.
func chainsOf(rules []string, policies []Policy) []string {
	chains := []string{whoChain}
	for i := range policies {
		chains = append(chains, chainOf(i))
	}
	for _, r := range rules {
		chains = append(chains, strings.Fields(r)[1])
	}
	slices.Sort(chains)
	return slices.Compact(chains)
}

func chainOf(policy int) string { return fmt.Sprintf("CHATD-P%d", policy) }

// policyRules is the chain of one policy: what it names exactly, then the
// metadata addresses refused, then what it names narrowly, then the private
// ranges refused, then what it names widely. The end of the chain refuses.
func policyRules(f family, chain string, p Policy) []string {
	exact, narrow, wide := sortAllows(f, p)
	var rules []string
	allow := func(list []chat.Allow, extra string) {
		for _, a := range list {
			rules = append(rules, fmt.Sprintf("-A %s %s-d %s %s -j ACCEPT", chain, extra, a.Prefix, ports(a)))
		}
	}
	allow(exact, "")
	if len(narrow)+len(wide) > 0 {
		rules = append(rules, "-A "+chain+" -j CHATD-META")
	}
	allow(narrow, "")
	if len(wide) > 0 {
		rules = append(rules, "-A "+chain+" -j CHATD-DENY")
	}
	// The host's own public addresses are reached over lo: a wide allow means the
	// internet, not the services of this host.
	allow(wide, "! -o lo ")
	return rules
}

func ports(a chat.Allow) string {
	proto := "tcp"
	if a.UDP {
		proto = "udp"
	}
	if a.Low == a.High {
		return fmt.Sprintf("-p %s -m %s --dport %d", proto, proto, a.Low)
	}
	return fmt.Sprintf("-p %s -m %s --dport %d:%d", proto, proto, a.Low, a.High)
}

// sortAllows splits what a policy opens in one family. Wide is an allow that
// takes in a denied range without being meant for it: 0.0.0.0/0 is wide,
// 10.0.0.0/8 and 203.0.113.0/24 are narrow, a single address is exact.
func sortAllows(f family, p Policy) (exact, narrow, wide []chat.Allow) {
	v4 := f.name == ipv4.name
	for _, r := range p.Resolvers {
		if r.Is4() == v4 {
			to := netip.PrefixFrom(r, r.BitLen())
			exact = append(exact, chat.Allow{Prefix: to, Low: 53, High: 53, UDP: true}, chat.Allow{Prefix: to, Low: 53, High: 53})
		}
	}
	for _, a := range p.Egress {
		switch {
		case a.Prefix.Addr().Is4() != v4:
		case a.Prefix.IsSingleIP():
			exact = append(exact, a)
		case isWide(f, a.Prefix):
			wide = append(wide, a)
		default:
			narrow = append(narrow, a)
		}
	}
	return exact, narrow, wide
}

func isWide(f family, p netip.Prefix) bool {
	return slices.ContainsFunc(f.denied, func(d string) bool {
		denied := netip.MustParsePrefix(d)
		return p.Bits() < denied.Bits() && p.Overlaps(denied)
	})
}

// check refuses invalid policies before anything is changed.
func check(o Options, policies []Policy) error {
	for _, p := range policies {
		if err := checkPolicy(o.Range, p); err != nil {
			return fmt.Errorf("cannot use egress policy %s: %w", chat.Quote(p.Profile), err)
		}
	}
	return nil
}

func checkPolicy(all Range, p Policy) error {
	if err := chat.CheckName("profile", p.Profile); err != nil {
		return err
	}
	for _, b := range p.Blocks {
		if b.Low > b.High || !all.Contains(b.Low) || !all.Contains(b.High) {
			return fmt.Errorf("uids %s: want a block inside %s: %w", b, all, chat.ErrInvalid)
		}
	}
	for _, r := range p.Resolvers {
		if !r.IsValid() || r.Is4In6() || r.Zone() != "" {
			return fmt.Errorf("resolver %s: want an IPv4 or IPv6 address without a zone: %w", r, chat.ErrInvalid)
		}
	}
	for _, a := range p.Egress {
		if !a.Prefix.IsValid() || a.Prefix.Addr().Is4In6() || a.Low == 0 || a.Low > a.High {
			return fmt.Errorf("egress %s: want a destination and its ports: %w", a, chat.ErrInvalid)
		}
	}
	return nil
}
