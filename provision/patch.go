package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/policy"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
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

// checkPatch refuses what the caller may not have, or the chat's session not bear, and names the
// rule.
func (m *Manager) checkPatch(
	ctx context.Context, before, after state.Record, p chat.Patch,
) (rule string, err error) {
	caller, moves := chat.CallerFrom(ctx), before.Profile != after.Profile
	if _, known := m.opt.Profiles[after.Profile]; moves && !known {
		return "", fmt.Errorf("cannot use profile %s: there is none of that name: %w",
			chat.Quote(after.Profile), chat.ErrInvalid)
	}
	profile, asked := m.policy.Profile(after.Profile), p.ApplyLimits(nil)
	for _, name := range []string{after.Profile, before.Profile} {
		if !moves || m.policy.Profile(name).MayUse(caller) {
			continue
		}
		const why = "cannot move chat %s from profile %s to %s: owner %s is not among the bridges of %s: %w"
		return "bridges", fmt.Errorf(why, after.ID, before.Profile, after.Profile,
			chat.Quote(caller.Name), name, chat.ErrDenied)
	}
	if moves || p.ChangesEgress() {
		if err := profile.CheckEgress(after.EgressChange()); err != nil {
			return "egress_may_add", err
		}
	}
	if moves {
		if err := m.checkView(before, after); err != nil {
			return "", err
		}
		asked = after.Limits
		if err := m.policy.Raise(ctx, []policy.Chat{m.chatOf(after)}); err != nil {
			return "", err
		}
	}
	if moves || p.ChangesLimits() {
		if err := profile.CheckLimits(after.Limits, asked, caller); err != nil {
			return "limits", err
		}
	}
	if m.profile(before).Limits != m.profile(after).Limits {
		if err := m.checkPause(caller, after.ID); err != nil {
			return "", err
		}
	}
	was, is := m.profile(before).Limits.MemoryMax, m.profile(after).Limits.MemoryMax
	switch {
	case is > was:
		return "", m.checkPromised(after.ID, is-was)
	case is < was && !p.Force:
		return "", m.checkMemory(after)
	}
	return "", nil
}

// checkPromised refuses memory for an awake chat beyond what all may have together: to make room
// others would have to sleep, which a wake asks for.
func (m *Manager) checkPromised(id chat.ID, more uint64) error {
	most := m.shares.MaxMemory
	if most == 0 || !m.session(id).lives() || m.shares.Promised()+more <= most {
		return nil
	}
	return fmt.Errorf("cannot give chat %s more memory while it is awake: all awake chats have at most "+
		"%d bytes (max_awake_memory): put it to sleep before: %w", id, most, chat.ErrBusy)
}

// limitsPause is how long a bridge waits between two changes of a living chat's limits: the kernel
// gives the quota of a whole period with each new one.
const limitsPause = time.Second

// checkPause refuses a change of limits right after another.
func (m *Manager) checkPause(by chat.Caller, id chat.ID) error {
	s := m.session(id)
	if by.Role == chat.RoleOperator || !s.lives() || time.Since(s.limited()) >= limitsPause {
		return nil
	}
	return fmt.Errorf("cannot change the limits of chat %s: they have just changed: want %s between: %w",
		id, limitsPause, chat.ErrBusy)
}

// checkView refuses to move a chat whose session sees paths of the host that the new profile does not
// open in the same way: with its rules, or its egress, they would meet what neither profile allows.
func (m *Manager) checkView(before, after state.Record) error {
	s := m.session(after.ID)
	if !s.lives() || len(s.Exposed) == 0 {
		return nil
	}
	is := m.basis(after)
	for _, key := range []string{"expose_paths", "allow_read_paths", "allow_write_paths"} {
		if s.Basis[key] != is[key] {
			return fmt.Errorf("cannot move chat %s to profile %s while it is awake: its session sees what "+
				"%s of profile %s opens: put it to sleep first: %w", after.ID, after.Profile, key,
				before.Profile, chat.ErrWrongPhase)
		}
	}
	return nil
}

// checkMemory refuses a memory_max below what the chat holds: cgroup v1 would refuse it, and v2 end
// processes.
func (m *Manager) checkMemory(after state.Record) error {
	most := m.profile(after).Limits.MemoryMax
	if !m.session(after.ID).lives() {
		return nil
	}
	held, err := m.groups.Held(after.ID)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // it has just ended
	}
	if err != nil || held <= most {
		return err
	}
	const then = "let it end programs or put it to sleep, or use force: cgroup v2 ends processes " +
		"then, and v1 waits"
	return fmt.Errorf("cannot set memory_max of chat %s to %d bytes: it holds %d: %s: %w",
		after.ID, most, held, then, chat.ErrBusy)
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
		s.limitedAt.Store(time.Now().UnixNano())
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
