package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/state"
)

// raiseWalls writes the packet rules for every profile before the first chat:
// from here on a uid of the range is walled, account or not.
//
// A host without the programs for them has neither of the two layers, which
// config may excuse.
func (m *Manager) raiseWalls(ctx context.Context) error {
	if err := m.openTable(ctx); err != nil {
		return err
	}
	if m.table == nil {
		return nil
	}
	for name := range m.opt.Profiles {
		if _, _, err := m.store.EnsureBlock(name); err != nil && !noRoom(err) && !errors.Is(err, chat.ErrBusy) {
			return err // without a block there is no uid of it: its chats wait, and all others stand
		}
	}
	return m.applyWall(ctx)
}

// applyWall makes the kernel hold the policies of all blocks that were ever
// given. A profile that is not configured any more keeps its blocks and opens
// nothing.
func (m *Manager) applyWall(ctx context.Context) error {
	if m.without(chat.LayerEgress) {
		return nil
	}
	m.wall.Lock()
	defer m.wall.Unlock()
	var policies []netpolicy.Policy
	blocks := m.store.Blocks()
	for _, name := range m.store.Profiles() {
		p := m.opt.Profiles[name]
		policy := netpolicy.Policy{Profile: name, Egress: p.Egress, Resolvers: p.Resolvers}
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

// ensureBlock makes sure that the profile has uids left whose rules stand. A new
// chat on a known profile comes through here without touching the kernel.
func (m *Manager) ensureBlock(ctx context.Context, profile string) error {
	_, added, err := m.store.EnsureBlock(profile)
	if err != nil || !added {
		return err
	}
	return m.applyWall(ctx)
}

// createEgress makes sure that the chat's uid has its policy. Until it has, the
// wall of the whole range refuses it everything.
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

// isWalled must not wait for whoever changes the rules: a chat of a known profile
// is created while iptables' lock is held by somebody else.
func (m *Manager) isWalled(rec state.Record) bool {
	walled := m.walled.Load()
	return walled != nil && slices.ContainsFunc(*walled, func(p netpolicy.Policy) bool {
		return p.Profile == rec.Profile && slices.ContainsFunc(p.Blocks, func(b netpolicy.Range) bool { return b.Contains(rec.UID) })
	})
}

// driftEgress looks at memory alone; the kernel's rules are compared once for
// all chats, in mendWall.
func (m *Manager) driftEgress(_ context.Context, rec state.Record) (string, error) {
	if m.without(chat.LayerEgress) || m.isWalled(rec) {
		return "", nil
	}
	return fmt.Sprintf("uid %d has no policy", rec.UID), nil
}

// removeEgress has nothing to take away: rules belong to blocks of uids, and the
// spent uid stays walled for ever.
func (m *Manager) removeEgress(context.Context, state.Record) error { return nil }

// network is the kind of network a session of the profile gets.
func (m *Manager) network(p chat.Profile) chat.Network {
	if m.without(chat.LayerNetwork) {
		return chat.NetworkShared
	}
	return p.EffectiveNetwork()
}
