package provision

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/state"
)

// newGateway returns what carries the connections of chats with a network of their own.
func (m *Manager) newGateway() *gateway.Gateway {
	return gateway.New(gateway.Options{
		Dir: filepath.Join(m.opt.Run, "egress"), Program: m.opt.Egress,
		UID: m.opt.EgressUID, GID: m.opt.EgressGID, DNSUID: m.dnsUID(), Unit: m.ownUnits(), Servers: m.opt.DNSServers,
		MaxFlows: m.opt.MaxFlows,
		Secrets:  gateway.SecretOptions{Grants: m.grants, Issue: m.issueCertificate, Roots: hostRoots},
		Bound:    func(pid int) error { return m.groups.Bound(cgroup.Egress, pid) },
		Report:   func(err error) { m.report("chatd-egress", err) }, Log: m.log,
		Events: m.tookEvents,
	})
}

// SetDNSServers replaces the servers that are asked for the names of chats.
func (m *Manager) SetDNSServers(ctx context.Context, servers []netip.AddrPort) error {
	m.wall.Lock()
	m.opt.DNSServers = servers
	m.wall.Unlock()
	return errors.Join(m.applyWall(ctx), m.gateway.SetServers(ctx, servers))
}

// way is the chat as package gateway knows it.
func (m *Manager) way(rec state.Record) gateway.Chat {
	return gateway.Chat{ID: rec.ID, Owner: rec.Owner, UID: rec.UID, Allow: m.profile(rec).Egress}
}

// barrier returns what root does in a session that begins, before its program goes on: its network
// is set up and its file rules are applied. It is nil if there is nothing to do.
func (m *Manager) barrier(rec state.Record, v plan.View) func(context.Context, *sys.HeldProcess) error {
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

// adoptNetwork holds the network of a session that an earlier chatd started.
func (m *Manager) adoptNetwork(rec state.Record, s *liveSession) error {
	network := m.layers.Network(m.profile(rec))
	if s.Plan != nil {
		network = s.Plan.Network // that of its profile when it began
	}
	if network != chat.NetworkOwn {
		return nil
	}
	return m.gateway.Adopt(m.way(rec), s.Init)
}
