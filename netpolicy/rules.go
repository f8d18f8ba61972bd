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
	// Egress lists destinations; empty means nowhere. A name opens its ports on every public
	// address: the rules cannot know what it stands for.
	Egress []chat.Allow
	// Outside are those of Egress that do not open an address of this host.
	Outside []chat.Allow
	// GID is the group that a socket's file must belong to, beside its uid; 0 asks for none.
	// Only chatd-root makes such sockets ([sys.SocketOf]). A process of the chat's uid outside its
	// session cannot, and so reaches nothing.
	GID uint32
}

// chainPrefix begins the name of every chain that chatd owns.
const chainPrefix = "CHATD"

// whoChain is where the chain of a packet's policy is found.
const whoChain = "CHATD-WHO"

// allLines and allBurst bound the lines of the kernel's log about refused packets, a minute and at
// once.
const allLines, allBurst = 100, 200

// family is what differs between iptables and ip6tables.
type family struct {
	name string
	// whole stands in go-iptables where List wants a chain: an option without effect
	// (iptables(8)), so that -S prints every chain. The library has no call for that.
	whole    string
	prohibit string
	metadata []netip.Prefix
	denied   []netip.Prefix
}

// ipv4 and ipv6 have what a wide allow (0.0.0.0/0) does not mean. Metadata services are reached
// only by an allow that names exactly that address.
var (
	ipv4 = family{
		name: "IPv4", whole: "--ipv4", prohibit: "icmp-admin-prohibited",
		metadata: metadataOf(netip.Addr.Is4), denied: deniedOf(netip.Addr.Is4),
	}
	ipv6 = family{
		name: "IPv6", whole: "--ipv6", prohibit: "icmp6-adm-prohibited",
		metadata: metadataOf(netip.Addr.Is6), denied: deniedOf(netip.Addr.Is6),
	}
)

func metadataOf(is func(netip.Addr) bool) (all []netip.Prefix) {
	for _, a := range chat.MetadataAddrs() {
		if is(a) {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

func deniedOf(is func(netip.Addr) bool) []netip.Prefix {
	return slices.DeleteFunc(chat.SpecialPrefixes(), func(p netip.Prefix) bool {
		return !is(p.Addr())
	})
}

// restoreText is the whole content of chatd's chains for one family, as
// iptables-restore(8) reads it, and last some rules of other chains. Each ":CHAIN" line empties that
// chain in the same transaction that fills it again, so no packet sees a half-written wall.
func restoreText(f family, policies []Policy, segments []segment, stale []string, last ...string) string {
	rules := append(baseRules(f), treeRules(segments, policies)...)
	for i, p := range policies {
		rules = append(rules, policyRules(f, chainOf(i), p)...)
	}
	return transaction(chainsOf(rules, policies), append(rules, last...), stale)
}

// baseRules are what the wall has whatever the policies are. Without anything
// in CHATD-WHO, they are the wall that allows nothing.
func baseRules(f family) []string {
	var rules []string
	add := func(chain, format string, args ...any) {
		rules = append(rules, "-A "+chain+" "+fmt.Sprintf(format, args...))
	}
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
	const log = `-A CHATD-NO -m limit --limit %d/min --limit-burst %d -j LOG --log-prefix "chatd refused " --log-uid`
	return []string{
		"-A CHATD-NO -m conntrack --ctstate INVALID -j DROP",
		fmt.Sprintf(log, allLines, allBurst),
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
	if p.GID == ^uint32(0) { // no id (setgid(2))
		return chat.Invalid("gid %d: want a group, or 0", p.GID)
	}
	for _, b := range p.Blocks {
		if b.Low > b.High || !all.Contains(b.Low) || !all.Contains(b.High) {
			return chat.Invalid("uids %s: want a block inside %s", b, all)
		}
	}
	for _, a := range p.Egress {
		if a.Named() && p.GID == 0 {
			return chat.Invalid("egress %s: a name wants the gid of the sockets that go to it", a)
		}
		if again, err := chat.ParseAllow(a.String()); err != nil || again != a {
			return chat.Invalid("egress %s: want a destination and its ports", a)
		}
	}
	return nil
}
