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

// The front parses commands: it checks them against the guard of the profile, whose terms it
// asks for, and finds the paths that they name. chatd-root checks those paths against the file
// rules, and audits a refusal, before the run starts. Text that is typed into a terminal is not
// checked.

// checkRun refuses, and audits, a run that the profile has switched off or whose paths the file
// rules deny. Its error is then a [chat.ErrDenied].
func (l *life) checkRun(ctx context.Context, rec subject, spec chat.RunSpec) error {
	if err := l.switchedOff(ctx, rec, chat.ToolExec, "run"); err != nil {
		return err
	}
	denial, err := l.policy.CheckRun(ctx, rec.rules(), spec)
	if err != nil || denial == nil {
		return err
	}
	return errors.Join(denial, l.trail.DeniedRun(ctx, rec.Record, spec.CommandLine(), denial))
}

// switchedOff refuses, with an audited [chat.ErrDenied], a tool that the profile switches off.
func (l *life) switchedOff(ctx context.Context, rec subject, tool, action string) error {
	err := rec.profile.CheckTool(tool)
	if err == nil {
		return nil
	}
	return errors.Join(err, l.trail.DeniedTool(ctx, rec.Record, action, tool, err))
}

// Package policy has the rules in force. This file reloads them, and ends sessions whose rules cannot
// be kept.

func (m *Manager) raiseEnforcer(ctx context.Context) error {
	return m.policy.Raise(ctx, m.chats.allChats())
}

// renewRules applies the current rules to an awake chat, or ends its session. The caller holds
// the chat's lock.
func (ss *sessions) renewRules(ctx context.Context, rec subject, s *liveSession) error {
	c := rec.rules()
	err := ss.policy.Apply(ctx, c, s.Init)
	if err == nil {
		return ss.policy.ForgetMasks(c, s.Session, ss.dirs.sessionDir(rec.ID, rec.UID))
	}
	ss.log.Error("ending a session whose file rules cannot be kept", "chat", rec.ID, "why", err)
	ctx = context.WithoutCancel(ctx)
	why := map[string]string{"why": "its file rules cannot be kept"}
	return errors.Join(err,
		ss.trail.Outcome(ctx, rec.Record, "sleep", why, ss.awakeSteps().backwards(ctx, ss.log, "sleep", rec)))
}

// checkKept checks that the enforcer still enforces the rules of a session, and applies them again
// if not. Until then, the chat could read files made later, unless the groups of the enforcer
// before are held ([policy.InForce.Follow]).
func (ss *sessions) checkKept(ctx context.Context, rec subject, s *liveSession) error {
	if ss.policy.Kept(ctx, rec.rules(), s.Init) {
		return nil
	}
	ss.log.Error("the enforcer did not enforce the rules of a session; unless its groups were held, files made later could be read until now", "chat", rec.ID)
	return ss.renewRules(ctx, rec, s)
}

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
func (m *Manager) ReloadProfiles(
	ctx context.Context, policies map[string]*filerules.Policy, profiles map[string]chat.Profile,
) error {
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
	if err := m.policy.Check(ctx, next, m.chats.allChats()); err != nil {
		return err
	}
	detail := next.Detail()
	if err := m.trail.Write(ctx, state.Record{}, "rules", "intent", detail); err != nil {
		return err
	}
	opened := m.egressMoves(next)
	m.policy.Set(next)
	var err error
	if table, _ := m.packets.Table(); len(opened) > 0 && table != nil {
		err = m.packets.Apply(ctx)
	}
	all := m.store.All()
	err = errors.Join(err, m.eachReloaded(ctx, all, m.reloadChat))
	// The last: a chatd-egress that does not answer takes its time for each chat. A chat whose lock
	// is not to be had wakes with the new egress.
	moved := slices.DeleteFunc(all, func(rec state.Record) bool { return !opened[rec.Profile] })
	_ = m.eachReloaded(ctx, moved, m.reloadEgress)
	if err != nil {
		err = &inForceError{err}
	}
	return m.trail.Outcome(ctx, state.Record{}, "rules", detail, err)
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

// eachReloaded acts in each of these chats. One that is being archived sleeps, and wakes with the new
// rules: others must not wait for hours until theirs hold.
func (m *Manager) eachReloaded(
	ctx context.Context, all []state.Record, act func(context.Context, subject, *liveSession) error,
) error {
	var errs []error
	for _, rec := range all {
		if m.archive.Progress(rec.ID) != nil {
			continue
		}
		c, unlock, err := m.chats.lockChat(ctx, rec.ID)
		if err == nil {
			err = act(ctx, c, m.chats.session(rec.ID))
			unlock()
		}
		if !errors.Is(err, chat.ErrNotFound) { // reaped meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reloadEgress tells chatd-egress where a chat may connect now.
func (m *Manager) reloadEgress(ctx context.Context, rec subject, s *liveSession) error {
	if s != nil && s.Init.Alive() {
		if err := m.gateway.Change(ctx, rec.ID, rec.profile.Egress); err != nil {
			m.log.Warn("a chat has not the egress of its profile yet", "chat", rec.ID, "why", err)
		}
	}
	return nil
}

// reloadChat brings one chat to the new rules and keys.
func (m *Manager) reloadChat(ctx context.Context, rec subject, s *liveSession) error {
	if err := m.disk.create(ctx, rec); err != nil {
		m.trail.Report("chat "+string(rec.ID), err) // as reconcile does, which tries again
	}
	if s == nil || !s.Init.Alive() {
		return nil
	}
	if err := m.applyLimits(rec, s, false); err != nil {
		m.log.Warn("a chat has not the limits of its profile yet", "chat", rec.ID, "why", err)
	}
	// The shims' policy first: it does not depend on the enforcer.
	return errors.Join(m.dirs.sessionDir(rec.ID, rec.UID).WritePolicy(m.policy.ForShims(rec.rules())),
		m.renewRules(ctx, rec, s))
}

// inForceError is an error that came after new rules and guards were in force.
type inForceError struct{ err error }

func (e *inForceError) Error() string { return e.err.Error() }
func (e *inForceError) Unwrap() error { return e.err }

// ReloadFrom is [Manager.ReloadProfiles] with the result of read. An error stays a finding until
// a later call succeeds.
func (m *Manager) ReloadFrom(
	ctx context.Context, read func() (map[string]*filerules.Policy, map[string]chat.Profile, error),
) {
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
	m.trail.Report("the file rules", err)
}

// ReloadSecrets reads the files of the secrets again.
func (m *Manager) ReloadSecrets(ctx context.Context) error { return m.secrets.reload(ctx) }

// Explain answers whether the chat's file rules allow an operation, or its egress a destination,
// and which rule or entry decides. A listed name of an awake chat is looked up too. Links are
// followed in the chat, as the chat: root follows none.
func (rs *runner) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	rec, err := rs.chats.reach(ctx, id)
	if err != nil {
		return chat.Explained{}, err
	}
	e, err := rs.policy.Explain(ctx, rec.rules(), q, rs.inside(ctx, rec))
	if err != nil || q.Host == "" || q.Destination().Name() == "" || e.Rule == "" {
		return e, err
	}
	if why := rs.gateway.Resolve(ctx, rec.ID, q.Destination()); why != nil {
		e.Why += "; nothing is reached now: " + chat.EgressText(why.Error())
	}
	return e, nil
}
