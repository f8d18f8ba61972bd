package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// SetFileRules sets the file rules of the profiles, by profile name. A profile that the map lacks
// gets the built-in rules.
func (m *Manager) SetFileRules(policies map[string]*filerules.Policy) { m.policy.SetRules(policies) }

// Reload sets the file rules of the profiles, also in the sessions of awake chats. It refuses
// rules that cannot be enforced, and the old ones stay. A session to which the new rules cannot
// be applied ends, which is an error.
func (m *Manager) Reload(ctx context.Context, policies map[string]*filerules.Policy) error {
	return m.reload(ctx, m.policy.WithRules(policies))
}

// ReloadProfiles is [Manager.Reload], and sets guard, tools_off, timeout_max, limits, env and
// egress of the profiles that chatd was started with. They hold for new runs immediately, and for
// the shims of awake chats; limits and egress hold in awake chats too, as far as the kernel changes
// them there ([chat.Chat].OldPlan has the rest). If it refuses anything, nothing changes.
func (m *Manager) ReloadProfiles(ctx context.Context, policies map[string]*filerules.Policy, profiles map[string]chat.Profile) error {
	next, err := m.policy.WithProfiles(policies, profiles)
	for name := range m.opt.Profiles {
		if err == nil {
			err = secret.Check(m.policy.ProfileIn(next, name), m.opt.Secrets)
		}
	}
	if err != nil {
		return err
	}
	return m.reload(ctx, next)
}

func (m *Manager) reload(ctx context.Context, next policy.Next) error {
	if err := m.policy.Check(ctx, next, m.allChats()); err != nil {
		return err
	}
	event := state.Event{Action: "rules", Outcome: "intent", Caller: chat.CallerFrom(ctx), Detail: next.Detail()}
	if err := m.store.Audit(event); err != nil {
		return err
	}
	opened := m.egressMoves(next)
	m.policy.Set(next)
	var errs []error
	if len(opened) > 0 && m.table != nil {
		errs = append(errs, m.applyWall(ctx))
	}
	all := m.store.All()
	for _, rec := range all {
		errs = append(errs, m.reloadChat(ctx, rec.ID))
	}
	// The last: a chatd-egress that does not answer takes its time for each chat.
	for _, rec := range all {
		if opened[rec.Profile] {
			m.reloadEgress(ctx, rec.ID)
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		err = &inForceError{err}
	}
	event.Outcome = "done"
	if err != nil {
		event.Outcome = "failed"
		event.Detail["error"] = err.Error()
	}
	return errors.Join(err, m.store.Audit(event))
}

// egressMoves names the profiles in which next changes where chats may connect.
func (m *Manager) egressMoves(next policy.Next) map[string]bool {
	moves := map[string]bool{}
	for name := range m.opt.Profiles {
		now, then := m.policy.Profile(name), m.policy.ProfileIn(next, name)
		if !slices.Equal(now.Egress, then.Egress) ||
			!slices.Equal(now.EgressMayAdd, then.EgressMayAdd) {
			moves[name] = true
		}
	}
	return moves
}

// reloadEgress tells chatd-egress where a chat may connect now.
func (m *Manager) reloadEgress(ctx context.Context, id chat.ID) {
	if m.archive.progressOf(id) != nil {
		return // see reloadChat
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if s := m.session(id); err != nil || s == nil || !s.Init.Alive() {
		return
	}
	if err := m.gateway.Change(ctx, id, m.profile(rec).Egress); err != nil {
		m.log.Warn("a chat has not the egress of its profile yet", "chat", id, "why", err)
	}
}

// inForceError is an error that came after new rules and guards were in force.
type inForceError struct{ err error }

func (e *inForceError) Error() string { return e.err.Error() }
func (e *inForceError) Unwrap() error { return e.err }

// reloadChat does so in one chat. One that is being archived sleeps, and wakes with the new ones:
// others must not wait for hours until theirs hold.
func (m *Manager) reloadChat(ctx context.Context, id chat.ID) error {
	if m.archive.progressOf(id) != nil {
		return nil
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if err == nil {
		if err := m.createDisk(ctx, rec); err != nil {
			m.setFinding("chat "+string(id), err) // as reconcile does, which tries again
		}
	}
	s := m.session(id)
	if err != nil || s == nil || !s.Init.Alive() {
		return nil
	}
	if err := m.applyLimits(rec, s, false); err != nil {
		m.log.Warn("a chat has not the limits of its profile yet", "chat", id, "why", err)
	}
	// The shims' policy first: it does not depend on the enforcer.
	return errors.Join(m.sessionDir(rec.ID, rec.UID).WritePolicy(m.shimPolicy(rec)), m.renewRules(ctx, rec, s))
}

// ReloadFrom is [Manager.ReloadProfiles] with the result of read. An error stays a finding until
// a later call succeeds.
func (m *Manager) ReloadFrom(ctx context.Context, read func() (map[string]*filerules.Policy, map[string]chat.Profile, error)) {
	m.programs.Forget()
	m.freshPrograms()
	policies, profiles, err := read()
	if err == nil {
		err = m.ReloadProfiles(ctx, policies, profiles)
	}
	var inForce *inForceError
	switch {
	case errors.As(err, &inForce):
		err = fmt.Errorf("the new rules and guard are in force; sessions that could not be brought to them were ended: %w", err)
	case err != nil:
		err = fmt.Errorf("reload failed; rules and guard unchanged: %w", err)
	default:
		m.log.Info("the file rules were read again, and the guards")
		m.sayOpenings()
	}
	m.report("the file rules", err)
}
