package netpolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Bounds on what one uid may take of the host's connection table, loopback and outside together.
// The table is one for the whole host (262,144 entries by default). A closed connection keeps its
// entry for up to 120 s, so the rate matters as much as the number. A connection too many ends with
// EHOSTUNREACH; one too soon loses its SYN, which the kernel sends again a second later, or gets
// EPERM by UDP.
const (
	maxFlows   = 256 // simultaneously open connections
	newFlows   = 50  // new connections a second, after a burst
	burstFlows = 500
)

// A listener keeps a refused SYN for one second. So many refusals a second, after a burst, may one
// chat cause before it gets no new loopback connection for two. Otherwise it could keep the queue
// of another's listener full.
const (
	refusals      = 2
	burstRefusals = 10
	banned        = 2 * time.Second
)

// firstNumber and lastNumber bound the connection marks that stand for chats. lastNumber itself
// stands for no chat: it marks a refused connection.
const (
	firstNumber = 0x40000000
	lastNumber  = 0x7fffffff
)

// loopbackText is the static nft table (nft(8)) that keeps chats apart on
// loopback. It has no rule for any single chat. How it works:
//
// A uid gets a number at its first loopback connection (map ids). The number becomes the mark of
// every connection it begins, and the set "same" holds the pairs of uid and its own number. A
// packet passes only if the pair of its own uid and its connection's mark is in that set, so both
// ends must have one uid. The answer of anybody else, root too, is not in it. Both collections grow
// by uids and not by connections: no chat can fill them for the others. When one is full, the next
// uid is refused.
//
// A refused SYN-ACK is turned into a RST, so the client fails immediately. The listener's next try
// at it is answered by a RST of its own, which frees it.
//
// A SYN with data (TCP fast open) is dropped: the data would reach the listener
// before its answer can be checked. The kernel sends the SYN again without.
//
// Packets without an owner (an ACK before accept(2), a RST, a FIN after close(2))
// pass if they carry no SYN; a SYN-ACK without an owner is a SYN cookie.
//
// The first packet of a flow to the outside is marked where its uid has lines left in
// the kernel's log: the filter rules, which see the packet next and may refuse it, cannot
// count by uid.
//
// A uid stays in ids and same for five days after its last flow, also when its chat is reaped.
// conntrack keeps an unclosed flow, with the number as its mark, for this long, and no other uid
// may have the number before.
//
// offset is the first number to give; existing pairs stay valid.
func loopbackText(o Options, opened []string, offset uint32) string {
	r := strings.NewReplacer(
		"RANGE", o.Range.String(), "MARK", fmt.Sprintf("%#x", uint32(packetMark)),
		"OFFSET", strconv.FormatUint(uint64(offset), 10), "SPAN", strconv.Itoa(1<<windowBits),
		"REFUSED", fmt.Sprintf("%#x", lastNumber), "OPENED", strings.Join(opened, "\n\t\t"),
		"FLOWS", strconv.Itoa(maxFlows), "RATE", strconv.Itoa(newFlows), "BURST", strconv.Itoa(burstFlows),
		"LINES", strconv.Itoa(uidLines), "HEARD", strconv.Itoa(uidBurst), "LOGGED", fmt.Sprintf("%#x", uint32(heardMark)),
		"OFTEN", strconv.Itoa(refusals), "PATIENCE", strconv.Itoa(burstRefusals), "BANNED", fmt.Sprintf("%ds", int(banned.Seconds())))
	return r.Replace(loopbackForm)
}

const loopbackForm = `add table inet chatd
flush table inet chatd
table inet chatd {
	map ids { type uid : mark; size 1048576; flags dynamic,timeout; timeout 5d; }
	set same { type uid . mark; size 1048576; flags dynamic,timeout; timeout 5d; }
	set conns { type uid; size 1048576; flags dynamic; }
	set rates { type uid; size 1048576; flags dynamic,timeout; timeout 1m; }
	set heard { type uid; size 1048576; flags dynamic,timeout; timeout 10m; }
	set refusals { type mark; size 1048576; flags dynamic,timeout; timeout 1m; }
	set banned { type mark; size 1048576; flags dynamic,timeout; timeout BANNED; }
	chain output {
		type filter hook output priority -5; policy accept;
		meta skuid RANGE goto owned
		oifname != "lo" return
		meta l4proto != tcp return
		ct mark & 0xc0000000 != 0x40000000 return
		ct direction reply goto reply
	}
	chain owned {
		ct status & confirmed == 0 jump bound
		oifname != "lo" return
		meta l4proto != tcp return
		tcp flags & (syn|ack) == syn @ih,0,8 >= 0 drop
		meta skuid . ct mark @same update @same { meta skuid . ct mark } meta mark set MARK return
		ct direction reply goto refuse
		jump opened
		ct state new tcp flags & (fin|syn|rst|ack) == syn goto begin
		reject with tcp reset
	}
	chain bound {
		add @conns { meta skuid ct count over FLOWS } reject with icmpx admin-prohibited
		update @rates { meta skuid limit rate over RATE/second burst BURST packets } drop
		oifname != "lo" update @heard { meta skuid limit rate LINES/minute burst HEARD packets } meta mark set LOGGED
	}
	chain opened {
		OPENED
	}
	chain begin {
		ct mark set meta skuid map @ids goto begun
		add @ids { meta skuid : numgen inc mod SPAN offset OFFSET }
		ct mark set meta skuid map @ids goto begun
		reject with tcp reset
	}
	chain begun {
		ct mark @banned reject with tcp reset
		update @ids { meta skuid : ct mark }
		update @same { meta skuid . ct mark } meta mark set MARK return
		reject with tcp reset
	}
	chain reply {
		meta skuid 0-4294967295 goto refuse
		tcp flags & syn == 0 return
		goto refuse
	}
	chain scold {
		update @refusals { ct mark limit rate over OFTEN/second burst PATIENCE packets } update @banned { ct mark }
	}
	chain refuse {
		ct mark REFUSED reject with tcp reset
		jump scold
		ct mark set REFUSED
		tcp flags & (syn|ack) == (syn|ack) tcp flags set rst|ack meta mark set MARK return
		reject with tcp reset
	}
}
`

// openedText replaces only the destinations that pass unmarked.
func openedText(policies []Policy) string {
	text := "flush chain inet chatd opened\n"
	for _, r := range openedRules(policies) {
		text += "add rule inet chatd opened " + r + "\n"
	}
	return text
}

// openedRules are the TCP destinations that some policy names exactly or
// narrowly, and that may be a service of this host. The table lets them pass
// unmarked; whether this chat's policy is one that names them is decided by the
// filter rules, which see the packet next. Wide allows are not among them.
func openedRules(policies []Policy) []string {
	var rules []string
	for _, p := range policies {
		for f, key := range map[*family]string{&ipv4: "ip", &ipv6: "ip6"} {
			exact, narrow, _ := sortAllows(*f, p)
			for _, a := range append(exact, narrow...) {
				if !a.UDP {
					rules = append(rules, openedRule(key, a))
				}
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

func openedRule(key string, a chat.Allow) string {
	return fmt.Sprintf("%s daddr %s tcp dport %d-%d accept", key, a.Prefix, a.Low, a.High)
}

// windowBits is the size of the run of numbers that one load of the table gives
// out: more than the uids that can be new within the five days a number lasts.
const windowBits = 20

var (
	givenNumber = regexp.MustCompile(`: 0x([0-9a-f]{8})\b`)
	givenOffset = regexp.MustCompile(`\boffset ([0-9]{1,10})\b`)
)

// freeOffset begins a window of numbers of which the listed table has given none and gives none
// now. Two uids with one number would be one chat on loopback. It is the window after the one in
// use, so a number comes back as late as can be.
func freeOffset(listing string) (uint32, error) {
	used := map[uint64]bool{lastNumber >> windowBits: true}
	now := uint64(firstNumber)>>windowBits - 1
	for base, found := range map[int][][]string{16: givenNumber.FindAllStringSubmatch(listing, -1), 10: givenOffset.FindAllStringSubmatch(listing, -1)} {
		for _, m := range found {
			n, err := strconv.ParseUint(m[1], base, 64)
			if err != nil {
				return 0, fmt.Errorf("cannot read the number %s in the nft table inet chatd: %w", chat.Quote(m[1]), err)
			}
			used[n>>windowBits] = true
			if base == 10 {
				now = n >> windowBits
			}
		}
	}
	const first, count = uint64(firstNumber) >> windowBits, uint64(lastNumber-firstNumber+1) >> windowBits
	for i := range count {
		if w := first + (now+1+i-first)%count; !used[w] {
			return uint32(w << windowBits), nil
		}
	}
	return 0, fmt.Errorf("cannot number chats on loopback: every window of numbers is in use: %w", chat.ErrBusy)
}
