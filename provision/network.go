package provision

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/gateway"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// newGateway returns what carries the connections of chats with a network of their own.
func (m *Manager) newGateway() *gateway.Gateway {
	return gateway.New(gateway.Options{
		Dir: filepath.Join(m.opt.Run, "egress"), Program: m.opt.Egress,
		UID: m.opt.EgressUID, GID: m.opt.EgressGID, Unit: m.ownUnits(), Servers: m.opt.DNSServers,
		Secrets: gateway.SecretOptions{Grants: m.grants, Issue: m.issueCertificate},
		Bound:   func(pid int) error { return m.groups.Bound(cgroup.Egress, pid) },
		Report:  func(err error) { m.report("chatd-egress", err) }, Log: m.log,
		Events: m.tookEvents,
	})
}

// SetDNSServers replaces the servers that are asked for the names of chats.
func (m *Manager) SetDNSServers(ctx context.Context, servers []netip.AddrPort) error {
	return m.gateway.SetServers(ctx, servers)
}

// way is the chat as package gateway knows it.
func (m *Manager) way(rec state.Record) gateway.Chat {
	return gateway.Chat{ID: rec.ID, Owner: rec.Owner, UID: rec.UID, Allow: m.profile(rec).Egress}
}

// barrier returns what root does in a session that begins, before its program goes on: its network
// is set up and its file rules are applied. It is nil if there is nothing to do.
func (m *Manager) barrier(rec state.Record, v shims.View) func(context.Context, *sys.HeldProcess) error {
	rules := m.policy.Barrier(m.chatOf(rec))
	if v.Network != chat.NetworkOwn {
		return rules
	}
	return func(ctx context.Context, init *sys.HeldProcess) error {
		if err := m.gateway.Open(ctx, m.way(rec), init); err != nil || rules == nil {
			return err
		}
		return rules(ctx, init)
	}
}

// adoptNetwork holds the network of a session that an earlier chatd started. One that began in the
// host's network stays there until it ends.
func (m *Manager) adoptNetwork(rec state.Record, s *liveSession) error {
	network := m.layers.Network(m.profile(rec))
	if s.Plan != nil {
		network = s.Plan.Network // that of its profile when it began
	}
	if network != chat.NetworkOwn {
		return nil
	}
	shared, err := s.Init.SharesNamespace("net")
	if err != nil || shared {
		return err
	}
	return m.gateway.Adopt(m.way(rec), s.Init)
}

// checkNetwork reports a session that an earlier version started in the host's network, where the
// packet rules refuse it everything.
func (m *Manager) checkNetwork(s *liveSession) error {
	if m.without(chat.LayerNetwork) {
		return nil
	}
	shared, err := s.Init.SharesNamespace("net")
	if err == nil && shared {
		const why = "its session began in the host's network, as earlier versions had it, and " +
			"reaches nothing until it sleeps: chatd sleep %s"
		err = fmt.Errorf(why, s.Chat)
	}
	return err
}
