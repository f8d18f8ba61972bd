package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// explainEgress answers whether a profile opens a destination, by the entry that decides. A name is
// compared with the list and not looked up.
func explainEgress(p chat.Profile, to chat.Destination) chat.Explained {
	e := chat.Explained{
		Verdict: string(filerules.Deny), Layer: string(chat.LayerEgress), Name: to.String(),
		Paths: []string{},
	}
	by, listed := opens(p, to)
	own := isOwn(to) && !to.UDP
	if listed || own {
		e.Verdict = string(filerules.Allow)
	}
	if e.Why = whyNot(p, to, own); listed {
		e.Rule, e.Place, e.Why = by.String(), "egress of profile "+p.Name, "it is listed"
	}
	return e
}

// opens returns the entry of a profile that opens a destination.
func opens(p chat.Profile, to chat.Destination) (entry chat.Allow, ok bool) {
	switch name := to.Name(); {
	case p.EffectiveNetwork() == chat.NetworkNone || isOwn(to):
		return entry, false
	case name != "":
		return chat.ReachableHost(p.Egress, to.UDP, name, to.Port)
	}
	return chat.ReachableAddr(p.Egress, to.UDP, netip.AddrPortFrom(to.Addr(), to.Port))
}

// isOwn reports whether the destination is the chat itself: loopback, or a name that means it (RFC
// 6761, section 6.3).
func isOwn(to chat.Destination) bool {
	name := to.Name()
	return to.Addr().IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// whyNot says why no entry opens a destination.
func whyNot(p chat.Profile, to chat.Destination, own bool) string {
	addr := to.Addr()
	switch {
	case own:
		return "it is the chat itself: only its own servers answer there"
	case p.EffectiveNetwork() == chat.NetworkNone:
		return "the profile has network none"
	case slices.Contains(chat.MetadataAddrs(), addr):
		return "it is a metadata service, which only an entry of exactly this address opens"
	}
	elsewhere := false
	for _, a := range p.Egress {
		if !a.MatchesHost(to.Name()) && !a.Prefix.Contains(addr) {
			continue
		}
		if a.OpensPort(to.UDP, to.Port) {
			return "it is not public: a wide entry does not open it, it needs its own"
		}
		elsewhere = true
	}
	if elsewhere {
		return "it is listed with other ports, or another protocol"
	}
	return "it is not listed"
}
