package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/state"
)

// bounded refuses a bridge more of a share than one owner may have. It refuses no operator, who
// must be able to mend a host that is full.
func (m *Manager) bounded(ctx context.Context, share quota.Share, owner string, used, want uint64) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	return m.opt.Shares.Check(share, owner, used, want)
}

// mayCreate returns a check of the owner's chats and uids, which runs before a record is made.
func (m *Manager) mayCreate(ctx context.Context, owner string) func(state.Held) error {
	return func(h state.Held) error {
		return cmp.Or(m.bounded(ctx, quota.Chats, owner, h.Chats, 1), m.bounded(ctx, quota.UIDs, owner, h.UIDs, 1))
	}
}

// paced counts a new chat of the owner, or refuses it after too many in the last minute.
func (m *Manager) paced(ctx context.Context, owner string) error {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		return nil
	}
	after, ok := m.creates.Take(owner)
	if ok {
		return nil
	}
	limit := m.opt.Shares[quota.Creates]
	return &quota.Spent{Share: quota.Creates, Owner: owner, Used: limit, Limit: limit, After: after}
}

// auditSpent audits the refusal of a spent share, once a minute for each owner and share: a
// bridge may try again at any rate.
func (m *Manager) auditSpent(ctx context.Context, action string, err error) error {
	var spent *quota.Spent
	if !errors.As(err, &spent) {
		return err
	}
	if _, first := m.spent.Take(spent.Owner + " " + string(spent.Share)); !first {
		return err
	}
	detail := map[string]string{"owner": spent.Owner, "rule": spent.Share.Key(), "limit": fmt.Sprint(spent.Limit)}
	return errors.Join(m.store.Audit(state.Event{Action: action, Outcome: "denied", Caller: chat.CallerFrom(ctx), Detail: detail}), err)
}

// awakeOf counts the owner's chats that are awake or waking; mu is held.
func (m *Manager) awakeOf(owner string) uint64 {
	n := m.starting[owner]
	for _, s := range m.sessions {
		if s.owner == owner {
			n++
		}
	}
	return uint64(n)
}

// kept is the bytes of output that the run has, or may still store, in the run directory.
func (r *liveRun) kept() uint64 {
	if !r.info.Background {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.isOver():
		return uint64(2 * r.outputMax())
	case r.ended == nil:
		return 0
	}
	return uint64(min(r.ended.Result.StdoutBytes, r.outputMax()) + min(r.ended.Result.StderrBytes, r.outputMax()))
}

// keptByOwner is the sum of kept over the runs of each owner; the caller holds the lock.
func (l *liveRuns) keptByOwner() map[string]uint64 {
	kept := map[string]uint64{}
	for _, runs := range l.all {
		for _, r := range runs {
			kept[r.owner] += r.kept()
		}
	}
	return kept
}

// shareUses returns each owner's use of each share, without those that are not used.
func (m *Manager) shareUses() []chat.ShareUse {
	awake := map[string]uint64{}
	m.mu.Lock()
	for _, s := range m.sessions {
		awake[s.owner]++
	}
	m.mu.Unlock()
	m.runs.mu.Lock()
	kept := m.runs.keptByOwner()
	m.runs.mu.Unlock()
	chats, uids := map[string]uint64{}, map[string]uint64{}
	for owner, h := range m.store.Owners() {
		chats[owner], uids[owner] = h.Chats, h.UIDs
	}
	return m.opt.Shares.Uses(map[quota.Share]map[string]uint64{
		quota.Chats: chats, quota.Creates: m.creates.Used(), quota.Awake: awake, quota.RunBytes: kept, quota.UIDs: uids,
	})
}

// shareFindings warns of shares, and of uids and awake chats in total, that are half spent.
func (m *Manager) shareFindings(uses []chat.ShareUse) []string {
	var uids, awake uint64
	findings := []string{}
	for _, u := range uses {
		switch quota.Share(u.Share) {
		case quota.UIDs:
			uids += u.Used
		case quota.Awake:
			awake += u.Used
		}
		if u.HalfSpent() {
			findings = append(findings, quota.Warning(u))
		}
	}
	all := uint64(m.opt.UIDs.High - m.opt.UIDs.Low + 1)
	if given := uint64(m.store.Given()); given >= all/2 {
		findings = append(findings, fmt.Sprintf("uids: %d of %d are given, for ever: widen uids before they are spent", given, all))
	}
	if most := uint64(m.opt.MaxAwake); most > 0 && awake >= (most+1)/2 {
		findings = append(findings, fmt.Sprintf("max_awake: %d of at most %d chats are awake", awake, most))
	}
	slices.Sort(findings)
	return findings
}
