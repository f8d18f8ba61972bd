package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/enforcer"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/verdict"
)

// checkRules refuses file rules that no enforcer of this host could enforce, except those that
// match too much: see countRules.
func (m *Manager) checkRules(context.Context) error {
	err := verdict.CheckPolicies(m.opt.Access, m.probeHome())
	if err == nil {
		m.warnOfRules(m.opt.Access)
	}
	return err
}

// warnOfRules logs rules that load and are probably mistakes, each warning once.
func (m *Manager) warnOfRules(policies map[string]*filerules.Policy) {
	said := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		for _, w := range policies[name].Warnings() {
			if !said[w] {
				said[w] = true
				m.log.Warn("file rules", "profile", name, "warning", w)
			}
		}
	}
}

// barrierFor makes a new session wait until the kernel enforces the chat's rules, if it has any
// that the kernel enforces.
func (m *Manager) barrierFor(rec state.Record, b *boundFiles) {
	if enforce.Needed(m.policy(rec), rec.Agent) {
		b.raise = func(ctx context.Context, l *sys.HeldProcess) error { return m.holdRules(ctx, rec, l) }
	}
}

// keepRules applies the current rules to a session, which may have others, or none.
func (m *Manager) keepRules(ctx context.Context, rec state.Record, l *sys.HeldProcess) error {
	if !enforce.Needed(m.policy(rec), rec.Agent) && !m.keeps(ctx, rec, l) {
		return nil
	}
	return m.holdRules(ctx, rec, l)
}

// keeps asks whether the enforcer holds rules in this session.
func (m *Manager) keeps(ctx context.Context, rec state.Record, l *sys.HeldProcess) bool {
	_, err := m.enforcer.Probe(ctx, sessionOf(rec, l))
	return err == nil
}

// holdRules makes the enforcer apply the chat's rules in its session.
func (m *Manager) holdRules(ctx context.Context, rec state.Record, l *sys.HeldProcess) error {
	file, text := m.policy(rec).Source()
	return m.enforcer.Hold(ctx, sessionOf(rec, l), enforcer.Rules{
		UID: rec.UID, Home: m.home(rec.ID), Agent: rec.Agent, File: file, Text: text,
	})
}

// dropRules tells the enforcer that the session has ended, and audits the chat's last refusals.
func (m *Manager) dropRules(ctx context.Context, id chat.ID) error {
	err := m.enforcer.Drop(ctx, id)
	m.takeRefused(ctx)
	return err
}

// Reload sets the file rules of the profiles, also in the sessions of awake chats. It refuses
// rules that cannot be enforced, and the old ones stay. A session to which the new rules cannot
// be applied ends, which is an error.
func (m *Manager) Reload(ctx context.Context, policies map[string]*filerules.Policy) error {
	return m.reload(ctx, policies, *m.checked.Load())
}

// ReloadProfiles is [Manager.Reload], and sets guard, tools_off and timeout_max of the profiles
// that chatd was started with. They hold for new runs immediately, and for the shims of awake
// chats. If it refuses anything, nothing changes.
func (m *Manager) ReloadProfiles(ctx context.Context, policies map[string]*filerules.Policy, profiles map[string]chat.Profile) error {
	keys, err := verdict.NewKeys(m.opt.Profiles, profiles)
	if err != nil {
		return err
	}
	return m.reload(ctx, policies, keys)
}

func (m *Manager) reload(ctx context.Context, policies map[string]*filerules.Policy, keys verdict.Keys) error {
	err := verdict.CheckPolicies(policies, m.probeHome())
	if err == nil {
		err = errors.Join(m.countPlaces(ctx, policies), m.enforcerForChats(ctx, policies))
	}
	if err != nil {
		return err
	}
	detail := map[string]string{"rules": verdict.SumOf(policies), "guards": keys.Sum()}
	event := state.Event{Action: "rules", Outcome: "intent", Caller: chat.CallerFrom(ctx), Detail: detail}
	if err := m.store.Audit(event); err != nil {
		return err
	}
	m.warnOfRules(policies)
	m.SetAccess(policies)
	m.checked.Store(&keys)
	var errs []error
	for _, rec := range m.store.All() {
		errs = append(errs, m.reloadChat(ctx, rec.ID))
	}
	err = errors.Join(errs...)
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

// inForceError is an error that came after new rules and guards were in force.
type inForceError struct{ err error }

func (e *inForceError) Error() string { return e.err.Error() }
func (e *inForceError) Unwrap() error { return e.err }

func (m *Manager) reloadChat(ctx context.Context, id chat.ID) error {
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	s := m.session(id)
	if err != nil || s == nil || !s.init.Alive() {
		return nil
	}
	// The shims' policy first: it does not depend on the enforcer.
	return errors.Join(m.writeShimPolicy(rec), m.renewRules(ctx, rec, s))
}

// renewRules applies the current rules to an awake chat, or ends its session. The caller holds
// the chat's lock.
func (m *Manager) renewRules(ctx context.Context, rec state.Record, s *session) error {
	err := m.keepRules(ctx, rec, s.init)
	if err == nil {
		return m.forgetMasks(rec, s)
	}
	m.log.Error("ending a session whose file rules cannot be kept", "chat", rec.ID, "why", err)
	ctx = context.WithoutCancel(ctx)
	why := map[string]string{"why": "its file rules cannot be kept"}
	return errors.Join(err, m.auditOutcome(ctx, rec, "sleep", why, m.backwards(ctx, "sleep", awakeSteps(), rec)))
}

// checkKept checks that the enforcer still enforces the rules of a session, and applies them
// again if not: until then, the chat could read files made later, unless the groups of the enforcer
// before are held ([enforcer.Client.Follow]).
func (m *Manager) checkKept(ctx context.Context, rec state.Record, s *session) error {
	if !enforce.Needed(m.policy(rec), rec.Agent) || m.keeps(ctx, rec, s.init) {
		return nil
	}
	m.log.Error("the keeper did not keep a session; where its groups were not held, files made later could be read until now", "chat", rec.ID)
	return m.renewRules(ctx, rec, s)
}

// ReloadFrom is [Manager.ReloadProfiles] with the result of read. An error stays a finding until
// a later call succeeds.
func (m *Manager) ReloadFrom(ctx context.Context, read func() (map[string]*filerules.Policy, map[string]chat.Profile, error)) {
	m.forgetPrograms()
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

// rulesIn adds to the layer view how the chat's file rules are enforced in its session now.
func (m *Manager) rulesIn(l chat.Layer, rec state.Record, s *session) chat.Layer {
	if !enforce.Needed(m.policy(rec), rec.Agent) {
		return l
	}
	if n := len(s.maskedPaths()); n > 0 {
		l.Probe += fmt.Sprintf("; file rules: bubblewrap masks %d denied paths", n)
	}
	a, err := m.enforcer.Probe(context.Background(), sessionOf(rec, s.init))
	if err != nil {
		l.State, l.Fix = chat.LayerWeaker, "start the keeper of file rules: systemctl start chatd-keeper"
		l.Probe += "; file rules: nobody judges files made later: " + err.Error()
		return l
	}
	l.By += ", chatd-enforce"
	l.Probe += fmt.Sprintf("; file rules: %d closed, %d read-only, %d open inside, files made later by %s", a.Masks, a.ReadOnly, a.Exceptions, a.Later)
	return l
}
