package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/state"
)

// raiseWalls writes the packet rules for every profile before the first chat. From here on they
// hold for every uid of the range, with or without an account.
//
// A host without the programs for packet rules lacks both layers that use them, which config may
// excuse.
func (m *Manager) raiseWalls(ctx context.Context) error {
	if err := m.openTable(ctx); err != nil {
		return err
	}
	if m.table == nil {
		return nil
	}
	for name := range m.opt.Profiles {
		if _, _, err := m.store.EnsureBlock(name); err != nil && !layers.NoRoom(err) && !errors.Is(err, chat.ErrBusy) {
			return err // a profile without a block gets no uids: only its new chats wait
		}
	}
	return m.applyWall(ctx)
}

// claimRules refuses to serve beside another chatd, whose packet rules would go.
func (m *Manager) claimRules(context.Context) (err error) {
	if m.opt.Claim && !m.without(chat.LayerEgress) {
		m.claim, err = netpolicy.Claim()
	}
	return err
}

// applyWall applies the policies of all blocks that were ever assigned. A
// profile that is not configured any more keeps its blocks, and its policy
// allows nothing.
func (m *Manager) applyWall(ctx context.Context) error {
	if m.without(chat.LayerEgress) {
		return nil
	}
	m.wall.Lock()
	defer m.wall.Unlock()
	policies := append([]netpolicy.Policy{m.dnsPolicy()}, m.exceptions()...)
	blocks := m.store.Blocks()
	for _, name := range m.store.Profiles() {
		p := m.policy.Profile(name)
		policy := netpolicy.Policy{Profile: name, Egress: p.Egress, GID: m.opt.EgressGID}
		for _, b := range blocks[name] {
			policy.Blocks = append(policy.Blocks, netpolicy.Range(b))
		}
		policies = append(policies, policy)
	}
	if err := m.table.Apply(ctx, policies); err != nil {
		return err
	}
	m.walled.Store(&policies)
	return nil
}

// dnsPolicy lets the sockets to DNS servers reach those. It stands first: a chatd with another
// config may have given the uid's block to a profile. The caller holds wall.
func (m *Manager) dnsPolicy() netpolicy.Policy {
	p := netpolicy.Policy{Profile: "dns-servers", GID: m.opt.EgressGID,
		Blocks: []netpolicy.Range{{Low: m.dnsUID(), High: m.dnsUID()}}}
	for _, s := range m.opt.DNSServers {
		to := chat.Allow{Prefix: netip.PrefixFrom(s.Addr(), s.Addr().BitLen()),
			Low: s.Port(), High: s.Port()}
		p.Egress = append(p.Egress, to)
		to.UDP = true
		p.Egress = append(p.Egress, to)
	}
	return p
}

// exceptions are the policies of chats whose egress differs from that of their profile, or whose
// uid is of another profile's block. They stand before those of the profiles.
func (m *Manager) exceptions() (policies []netpolicy.Policy) {
	for _, rec := range m.store.All() {
		change := rec.EgressChange()
		if !change.IsZero() || rec.Profile != m.store.BlockProfile(rec.UID) {
			policies = append(policies, netpolicy.Policy{
				Profile: rec.Profile, Egress: m.profile(rec).Egress, GID: m.opt.EgressGID,
				Outside: m.policy.Profile(rec.Profile).OnlyOutside(change),
				Blocks:  []netpolicy.Range{{Low: rec.UID, High: rec.UID}},
			})
		}
	}
	return policies
}

// ensureBlock makes sure that the profile has unused uids whose rules are in
// force. While the profile has uids left, it does not touch the kernel.
func (m *Manager) ensureBlock(ctx context.Context, profile string) error {
	_, added, err := m.store.EnsureBlock(profile)
	if err != nil || !added {
		return err
	}
	return m.applyWall(ctx)
}

// createEgress makes sure that the chat's uid has its policy. Before that, the rule for the
// whole range refuses it everything.
func (m *Manager) createEgress(ctx context.Context, rec state.Record) error {
	if m.without(chat.LayerEgress) || m.isWalled(rec) {
		return nil
	}
	if err := m.applyWall(ctx); err != nil {
		return err
	}
	if !m.isWalled(rec) {
		return fmt.Errorf("cannot wall uid %d: it is in no block of profile %s", rec.UID, rec.Profile)
	}
	return nil
}

// isWalled must not wait for a change of the rules. A chat of a known profile can be created while
// another process holds the lock of iptables.
func (m *Manager) isWalled(rec state.Record) bool {
	walled := m.walled.Load()
	if walled == nil {
		return false
	}
	i := slices.IndexFunc(*walled, func(p netpolicy.Policy) bool {
		has := func(b netpolicy.Range) bool { return b.Contains(rec.UID) }
		return slices.ContainsFunc(p.Blocks, has)
	}) // the first one holds
	return i >= 0 && (*walled)[i].Profile == rec.Profile &&
		slices.Equal((*walled)[i].Egress, m.profile(rec).Egress)
}

// driftEgress reads only memory; mendWall compares the kernel's rules once for all
// chats.
func (m *Manager) driftEgress(_ context.Context, rec state.Record) (string, error) {
	if m.without(chat.LayerEgress) || m.isWalled(rec) {
		return "", nil
	}
	return fmt.Sprintf("uid %d has no policy", rec.UID), nil
}

// dropException takes the policy that a reaped chat had for itself out of the packet rules; that of
// its block stays. It comes after the record's end: whoever applies the rules meanwhile goes by the
// records, and so does the next daemon after a crash.
func (m *Manager) dropException(ctx context.Context, rec state.Record) {
	walled := m.walled.Load()
	own := netpolicy.Range{Low: rec.UID, High: rec.UID}
	if walled == nil || !slices.ContainsFunc(*walled, func(p netpolicy.Policy) bool {
		return slices.Equal(p.Blocks, []netpolicy.Range{own})
	}) {
		return
	}
	if err := m.applyWall(ctx); err != nil {
		m.log.Error("the packet rules of a reaped chat stay until the next change",
			"chat", rec.ID, "error", err)
	}
}

// removeEgress removes nothing: rules belong to blocks of uids, and those for a
// spent uid stay for ever. See [Manager.dropException].
func (m *Manager) removeEgress(context.Context, state.Record) error { return nil }
