package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/egress/resolver"
	"github.com/chatd/chatd/internal/uplink"
)

// dnsPort is where questions for names go.
const dnsPort = 53

// target is where a chat's connection or flow leads.
type target struct {
	host string         // the name that dst stands for; empty for an address of the list
	dst  netip.AddrPort // what the chat connected to
	udp  bool
}

func (t target) String() string {
	if t.host == "" {
		return t.dst.String()
	}
	return fmt.Sprintf("%s:%d", t.host, t.dst.Port())
}

// listed reports whether the list opens the target.
func (t target) listed(list []chat.Allow) bool {
	ok := false
	if t.host == "" {
		_, ok = chat.ReachableAddr(list, t.udp, t.dst)
	} else {
		_, ok = chat.ReachableHost(list, t.udp, t.host, t.dst.Port())
	}
	return ok
}

// withoutName reports whether the list opens the target to TLS without a server name.
func (t target) withoutName(list []chat.Allow) bool {
	return slices.ContainsFunc(list, func(a chat.Allow) bool {
		return a.NoSNI && a.OpensPort(t.udp, t.dst.Port()) && a.MatchesHost(t.host)
	})
}

// usable reports whether the list opens one address of the target. A name opens only addresses of
// the internet: its owner could have it resolve to the host's own network (DNS rebinding) or to a
// metadata service. Those are opened by an entry that has the address.
func (t target) usable(list []chat.Allow, real netip.AddrPort) bool {
	if t.host == "" || chat.Public(real.Addr()) {
		return t.listed(list)
	}
	_, ok := chat.ReachableAddr(list, t.udp, real)
	return ok && t.listed(list)
}

// asksNames reports whether what goes to dst is a question for a name.
func asksNames(list []chat.Allow, udp bool, dst netip.AddrPort) bool {
	if dst.Port() != dnsPort {
		return false
	}
	_, listed := chat.ReachableAddr(list, udp, dst)
	return !listed || dst.Addr().IsLoopback()
}

// decide finds the target of dst, and refuses one that the list does not open. n.mu is held.
func (n *network) decide(dst netip.AddrPort, udp bool) (target, error) {
	t := target{dst: dst, udp: udp}
	if resolver.MadeUp(dst.Addr()) {
		host, known := n.book.Host(dst.Addr())
		if !known {
			return t, refusal(fmt.Sprintf("no name has the address %s", dst.Addr()))
		}
		t.host = host
	}
	if !t.listed(n.list) {
		return t, refusal(fmt.Sprintf("the profile does not list %s", t))
	}
	return t, nil
}

// addresses are those to try for a target, in their order.
func (n *network) addresses(ctx context.Context, t target) ([]netip.AddrPort, error) {
	if t.host == "" {
		return []netip.AddrPort{t.dst}, nil
	}
	addrs, err := n.resolver().Client.Addrs(ctx, t.host)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve %s: %w", t.host, err)
	}
	list := n.allowed()
	usable := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return !t.usable(list, netip.AddrPortFrom(a, t.dst.Port()))
	})
	if len(usable) == 0 {
		return nil, refusal(fmt.Sprintf("%s resolves to private addresses", t.host))
	}
	return interleave(usable, t.dst.Port()), nil
}

// resolve reports why a name of a chat's list leads to no address now.
func (s *server) resolve(call uplink.Call) error {
	n := s.network(call.Chat)
	if n == nil {
		return fmt.Errorf("cannot resolve for chat %s: its network is not open: %w", call.Chat,
			chat.ErrNotFound)
	}
	t := target{host: call.Host, dst: netip.AddrPortFrom(netip.Addr{}, call.Port), udp: call.UDP}
	if t.host == "" || !t.listed(n.allowed()) {
		return refusal(fmt.Sprintf("the profile does not list %s", t))
	}
	ctx, cancel := context.WithTimeout(n.ctx, explainTimeout)
	defer cancel()
	_, err := n.addresses(ctx, t)
	return err
}
