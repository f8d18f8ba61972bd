package packetrules

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/state"
)

// Apply applies the policies of all blocks that were ever assigned. A
// profile that is not configured any more keeps its blocks, and its policy
// allows nothing.
func (r *Rules) Apply(ctx context.Context) error {
	if r.Layers.Without(chat.LayerEgress) {
		return nil
	}
	r.wall.Lock()
	defer r.wall.Unlock()
	policies := append([]netpolicy.Policy{r.dnsPolicy()}, r.exceptions()...)
	blocks := r.Store.Blocks()
	for _, name := range r.Store.Profiles() {
		p := r.Policy.Profile(name)
		policy := netpolicy.Policy{Profile: name, Egress: p.Egress, GID: r.GID}
		for _, b := range blocks[name] {
			policy.Blocks = append(policy.Blocks, netpolicy.Range(b))
		}
		policies = append(policies, policy)
	}
	if err := r.table.Apply(ctx, policies); err != nil {
		return err
	}
	r.walled.Store(&policies)
	return nil
}

// dnsPolicy lets the sockets to DNS servers reach those. It stands first: a chatd with another
// config may have given the uid's block to a profile. The caller holds wall.
func (r *Rules) dnsPolicy() netpolicy.Policy {
	p := netpolicy.Policy{Profile: "dns-servers", GID: r.GID,
		Blocks: []netpolicy.Range{{Low: r.DNSUID, High: r.DNSUID}}}
	for _, s := range r.Servers {
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
func (r *Rules) exceptions() (policies []netpolicy.Policy) {
	for _, rec := range r.Store.All() {
		change := rec.EgressChange()
		if !change.IsZero() || rec.Profile != r.Store.BlockProfile(rec.UID) {
			policies = append(policies, netpolicy.Policy{
				Profile: rec.Profile, Egress: r.Policy.Of(rec).Egress, GID: r.GID,
				Outside: r.Policy.Profile(rec.Profile).OnlyOutside(change),
				Blocks:  []netpolicy.Range{{Low: rec.UID, High: rec.UID}},
			})
		}
	}
	return policies
}

// EnsureBlock makes sure that the profile has unused uids whose rules are in
// force. While the profile has uids left, it does not touch the kernel.
func (r *Rules) EnsureBlock(ctx context.Context, profile string) error {
	_, added, err := r.Store.EnsureBlock(profile)
	if err != nil || !added {
		return err
	}
	return r.Apply(ctx)
}

// Create makes sure that the chat's uid has its policy. Before that, the rule for the
// whole range refuses it everything.
func (r *Rules) Create(ctx context.Context, rec state.Record) error {
	if r.Layers.Without(chat.LayerEgress) || r.Has(rec) {
		return nil
	}
	if err := r.Apply(ctx); err != nil {
		return err
	}
	if !r.Has(rec) {
		return fmt.Errorf("cannot wall uid %d: it is in no block of profile %s", rec.UID, rec.Profile)
	}
	return nil
}

// Has must not wait for a change of the rules. A chat of a known profile can be created while
// another process holds the lock of iptables.
func (r *Rules) Has(rec state.Record) bool {
	walled := r.walled.Load()
	if walled == nil {
		return false
	}
	i := slices.IndexFunc(*walled, func(p netpolicy.Policy) bool {
		has := func(b netpolicy.Range) bool { return b.Contains(rec.UID) }
		return slices.ContainsFunc(p.Blocks, has)
	}) // the first one holds
	return i >= 0 && (*walled)[i].Profile == rec.Profile &&
		slices.Equal((*walled)[i].Egress, r.Policy.Of(rec).Egress)
}

// Drift reads only memory; Mend compares the kernel's rules once for all
// chats.
func (r *Rules) Drift(rec state.Record) (string, error) {
	if r.Layers.Without(chat.LayerEgress) || r.Has(rec) {
		return "", nil
	}
	return fmt.Sprintf("uid %d has no policy", rec.UID), nil
}

// DropException takes the policy that a reaped chat had for itself out of the packet rules; that of
// its block stays.
func (r *Rules) DropException(ctx context.Context, rec state.Record) error {
	walled := r.walled.Load()
	own := netpolicy.Range{Low: rec.UID, High: rec.UID}
	if walled == nil || !slices.ContainsFunc(*walled, func(p netpolicy.Policy) bool {
		return slices.Equal(p.Blocks, []netpolicy.Range{own})
	}) {
		return nil
	}
	if err := r.Apply(ctx); err != nil {
		r.Log.Error("the packet rules of a reaped chat stay until the next change",
			"chat", rec.ID, "error", err)
	}
	return nil
}

// SetServers replaces the DNS servers.
func (r *Rules) SetServers(ctx context.Context, servers []netip.AddrPort) error {
	r.wall.Lock()
	r.Servers = servers
	r.wall.Unlock()
	return r.Apply(ctx)
}
