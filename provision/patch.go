package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/state"
)

// Patch changes a chat: its record as a whole or not at all, and its session as far as the kernel
// allows. The answer's Changed says which is which. For labels alone it takes no lock of the chat:
// nothing here acts on them.
func (m *Manager) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	if p.OnlyLabels() {
		err = m.store.Patch(id, p, m.event(ctx, rec, "patch", "done", patchDetail(p)))
		if err != nil {
			return chat.Chat{}, err
		}
		c, err := m.Get(ctx, id)
		c.Changed = &chat.Changed{Now: []string{"labels"}, NextWake: []string{}}
		return c, err
	}
	p.Profile = m.profileName(p.Profile)
	unlock, err := m.locks.lock(ctx, rec.ID)
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	return m.patchLocked(ctx, rec.ID, p)
}

// patchLocked records what is to be before it acts: after a crash the next chatd brings the session
// to the record, when it adopts it and each minute.
func (m *Manager) patchLocked(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	before, err := m.store.Get(id)
	if err != nil {
		return chat.Chat{}, err
	}
	if before.Phase != chat.Ready {
		return chat.Chat{}, notReady(before, "change")
	}
	after := before
	if err := after.Patch(p); err != nil {
		return chat.Chat{}, err
	}
	caller := chat.CallerFrom(ctx)
	if rule, err := m.checkPatch(ctx, before, after, p); err != nil {
		return chat.Chat{}, m.refused(caller, before, "patch", rule, err)
	}
	grown, err := m.growMemory(ctx, before, after)
	if err != nil {
		return chat.Chat{}, err
	}
	defer grown()
	detail := m.changeDetail(before, after, p)
	err = m.store.Patch(id, p, m.event(ctx, before, "patch", "intent", maps.Clone(detail)))
	if err != nil {
		return chat.Chat{}, err
	}
	sys.Failpoint("patch.record.after")
	if after, err = m.store.Get(id); err != nil {
		return chat.Chat{}, err
	}
	changed, err := m.putInForce(context.WithoutCancel(ctx), before, after, p)
	sys.Failpoint("patch.live.after")
	failed := err
	if err == nil && changed.Why != "" {
		failed = fmt.Errorf("%v wait: %s", changed.Retried, changed.Why)
	}
	detail["now"], detail["next_wake"] = fmt.Sprint(changed.Now), fmt.Sprint(changed.NextWake)
	if err := errors.Join(err, m.auditEnd(ctx, after, "patch", detail, failed)); err != nil {
		return chat.Chat{}, err
	}
	c := m.show(ctx, after)
	c.Changed = &changed
	return c, nil
}

// putInForce brings the chat's session, and what keeps its egress, to its record. The caller holds
// the chat's lock.
func (m *Manager) putInForce(
	ctx context.Context, before, after state.Record, p chat.Patch,
) (changed chat.Changed, err error) {
	s, moves := m.session(after.ID), before.Profile != after.Profile
	if moves || p.ChangesEgress() {
		err = m.moveEgress(ctx, after)
	}
	if m.diskLimit(before) != m.diskLimit(after) {
		err = errors.Join(err, m.createDisk(ctx, after))
	}
	var waits error
	limitsDiffer := m.profile(before).Limits != m.profile(after).Limits
	if s.lives() && limitsDiffer {
		now := time.Now()
		s.limitedAt.Store(&now)
	}
	if s.lives() && (limitsDiffer || p.ChangesLimits() && s.behind.Load() != nil) {
		waits = m.applyLimits(after, s, p.Force)
	}
	if moves && s.lives() {
		err = errors.Join(err, m.renewRules(ctx, after, s)) // the last: it may end the session
	}
	changed = m.changedBy(before, after, p)
	if waits != nil {
		changed.Why = "chatd's log says why"
	}
	if errors.Is(waits, chat.ErrBusy) {
		changed.Why = chat.ErrorReason(waits)
	}
	return changed, err
}

// moveEgress brings what keeps a chat's egress to its record. The caller holds the chat's lock.
func (m *Manager) moveEgress(ctx context.Context, rec state.Record) error {
	err := m.gateway.Change(ctx, rec.ID, m.profile(rec).Egress)
	if !m.isWalled(rec) && !m.without(chat.LayerEgress) {
		err = errors.Join(err, m.applyWall(ctx))
	}
	if s := m.session(rec.ID); s.lives() {
		err = errors.Join(err, m.sessionDir(rec.ID, rec.UID).WritePolicy(m.shimPolicy(rec)))
	}
	return err
}

// refused audits an act that the rule does not admit.
func (m *Manager) refused(by chat.Caller, rec state.Record, act, rule string, why error) error {
	if !errors.Is(why, chat.ErrDenied) {
		return why
	}
	return errors.Join(m.store.Audit(state.Event{
		Action: act, Outcome: "denied", Caller: by, Chat: rec.ID, UID: rec.UID,
		Detail: map[string]string{"rule": rule, "error": why.Error()},
	}), why)
}

// changeDetail is patchDetail with what else changes: of variables the names alone.
func (m *Manager) changeDetail(before, after state.Record, p chat.Patch) map[string]string {
	d := patchDetail(p)
	if change := after.EgressChange(); p.ChangesEgress() {
		d["egress_add"], d["egress_remove"] = fmt.Sprint(change.Add), fmt.Sprint(change.Remove)
	}
	if before.Profile != after.Profile {
		d["profile"] = before.Profile + " to " + after.Profile
	}
	if p.ChangesEnv() {
		d["env"] = fmt.Sprint(slices.Sorted(maps.Keys(after.Env)))
	}
	if p.ChangesLimits() {
		for key, v := range after.Limits {
			d["limits."+key] = string(v)
		}
		for key := range before.Limits {
			if _, still := after.Limits[key]; !still {
				d["limits."+key] = "of the profile"
			}
		}
	}
	if p.Force {
		d["force"] = "true"
	}
	return d
}

// patchDetail returns the audit log's detail of a change: the names of the labels, without their
// values.
func patchDetail(p chat.Patch) map[string]string {
	d := map[string]string{}
	if p.NoLabels {
		d["labels"] = "removed"
	}
	for name, v := range p.Labels {
		d["label."+name] = "set"
		if v == nil {
			d["label."+name] = "removed"
		}
	}
	return d
}
