package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/policy"
)

// Patch changes a chat: its record as a whole or not at all, and its session as far as the kernel
// allows. The answer's Changed says which is which. For labels alone it takes no lock of the chat:
// nothing here acts on them.
func (m *Manager) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	if p.OnlyLabels() {
		err = m.store.Patch(id, p, m.trail.Event(ctx, rec.Record, "patch", "done", labelDetail(p)))
		if err != nil {
			return chat.Chat{}, err
		}
		c, err := m.Get(ctx, id)
		c.Changed = &chat.Changed{Now: []string{"labels"}, NextWake: []string{}}
		return c, err
	}
	p.Profile = m.profileName(p.Profile)
	before, unlock, err := m.chats.lockReady(ctx, id, "change")
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	return m.patchLocked(ctx, before, p)
}

// patchLocked records what is to be before it acts: after a crash the next chatd brings the session
// to the record, when it adopts it and each minute.
func (m *Manager) patchLocked(ctx context.Context, before subject, p chat.Patch) (chat.Chat, error) {
	id, next := before.ID, before.Record
	if err := next.Patch(p); err != nil {
		return chat.Chat{}, err
	}
	after := m.chats.subject(next)
	caller := chat.CallerFrom(ctx)
	if rule, err := m.checkPatch(ctx, before, after, p); err != nil {
		return chat.Chat{}, m.trail.Refused(caller, before.Record, "patch", rule, err)
	}
	grown, err := m.growMemory(ctx, before, after)
	if err != nil {
		return chat.Chat{}, err
	}
	defer grown()
	detail := patchDetail(before, after, p)
	err = m.store.Patch(id, p, m.trail.Event(ctx, before.Record, "patch", "intent", maps.Clone(detail)))
	if err != nil {
		return chat.Chat{}, err
	}
	sys.Failpoint("patch.record.after")
	if after, err = m.chats.get(id); err != nil {
		return chat.Chat{}, err
	}
	changed, err := m.putInForce(context.WithoutCancel(ctx), before, after, p)
	sys.Failpoint("patch.live.after")
	failed := err
	if err == nil && changed.Why != "" {
		failed = fmt.Errorf("%v wait: %s", changed.Retried, changed.Why)
	}
	detail["now"], detail["next_wake"] = fmt.Sprint(changed.Now), fmt.Sprint(changed.NextWake)
	if err := errors.Join(err, m.trail.End(ctx, after.Record, "patch", detail, failed)); err != nil {
		return chat.Chat{}, err
	}
	c := m.show(ctx, after)
	c.Changed = &changed
	return c, nil
}

// putInForce brings the chat's session, and what keeps its egress, to its record. The caller holds
// the chat's lock.
func (m *Manager) putInForce(
	ctx context.Context, before, after subject, p chat.Patch,
) (changed chat.Changed, err error) {
	s, moves := m.chats.session(after.ID), before.Profile != after.Profile
	if moves || p.ChangesEgress() {
		err = m.moveEgress(ctx, after)
	}
	if before.diskLimit() != after.diskLimit() {
		err = errors.Join(err, m.disk.create(ctx, after))
	}
	var waits error
	limitsDiffer := before.profile.Limits != after.profile.Limits
	if s.lives() && limitsDiffer {
		s.limitsChanged = time.Now()
	}
	if s.lives() && (limitsDiffer || p.ChangesLimits() && len(s.notKept()) > 0) {
		waits = m.applyLimits(after, s, p.Force)
	}
	if moves && s.lives() {
		err = errors.Join(err, m.renewRules(ctx, after, s)) // the last: it may end the session
	}
	changed = m.mounts.changed(before, after, s, p)
	switch {
	case errors.Is(waits, chat.ErrBusy):
		changed.Why = chat.ErrorReason(waits)
	case waits != nil:
		changed.Why = "chatd's log says why"
	}
	return changed, err
}

// moveEgress brings what keeps a chat's egress to its record. The caller holds the chat's lock.
func (m *Manager) moveEgress(ctx context.Context, rec subject) error {
	err := m.gateway.Change(ctx, rec.ID, rec.profile.Egress)
	if !m.packets.Has(rec.Record) && !m.layers.Without(chat.LayerEgress) {
		err = errors.Join(err, m.packets.Apply(ctx))
	}
	if s := m.chats.session(rec.ID); s.lives() {
		err = errors.Join(err, m.dirs.sessionDir(rec.ID, rec.UID).WritePolicy(m.policy.ForShims(rec.rules())))
	}
	return err
}

// checkPatch refuses what the caller may not have, or the chat's session not bear, and names the
// rule.
func (m *Manager) checkPatch(
	ctx context.Context, before, after subject, p chat.Patch,
) (rule string, err error) {
	caller, moves := chat.CallerFrom(ctx), before.Profile != after.Profile
	if err := m.checkName(after.Profile); moves && err != nil {
		return "", err
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
		asked = after.Limits
		if err := m.policy.Raise(ctx, []policy.Chat{after.rules()}); err != nil {
			return "", err
		}
	}
	if moves || p.ChangesLimits() {
		if err := profile.CheckLimits(after.Limits, asked, caller); err != nil {
			return "limits", err
		}
	}
	if s := m.chats.session(after.ID); s.lives() {
		return "", m.checkAwake(caller, s, before, after, p.Force)
	}
	return "", nil
}

// checkAwake refuses what the session of an awake chat would not bear.
func (m *Manager) checkAwake(by chat.Caller, s *liveSession, before, after subject, force bool) error {
	if before.Profile != after.Profile {
		if err := m.checkView(s, before, after); err != nil {
			return err
		}
	}
	was, is := before.profile.Limits, after.profile.Limits
	if was != is && by.Role != chat.RoleOperator && time.Since(s.limitsChanged) < limitsPause {
		return fmt.Errorf("cannot change the limits of chat %s: they have just changed: want %s between: %w",
			after.ID, limitsPause, chat.ErrBusy)
	}
	if !force && is.MemoryMax < was.MemoryMax {
		return m.checkMemory(after)
	}
	return nil
}

// growMemory makes room for what an awake chat gets more of memory, and is busy where there is none;
// done is called when its record says so.
func (m *Manager) growMemory(ctx context.Context, before, after subject) (done func(), err error) {
	is := after.place()
	if is.Memory <= before.place().Memory || !m.chats.session(after.ID).lives() {
		return func() {}, nil
	}
	if done, err = m.shares.Grow(ctx, after.ID, is); err != nil {
		return nil, fmt.Errorf("cannot give chat %s more memory while it is awake: %w", after.ID, err)
	}
	return done, nil
}

// limitsPause is how long a bridge waits between two changes of a living chat's limits: the kernel
// gives the quota of a whole period with each new one.
const limitsPause = time.Second

// checkView refuses to move a chat whose session sees paths of the host that the new profile does not
// open in the same way: with its rules, or its egress, they would meet what neither profile allows.
func (m *Manager) checkView(s *liveSession, before, after subject) error {
	if len(s.Exposed) == 0 {
		return nil
	}
	is := m.mounts.fingerprint(after)
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
func (m *Manager) checkMemory(after subject) error {
	most := after.profile.Limits.MemoryMax
	held, err := m.groups.Unreclaimable(after.ID)
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
