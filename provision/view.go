package provision

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/view"
	"github.com/chatd/chatd/state"
)

// newViews returns what plans the views of sessions.
func (m *Manager) newViews() *view.Planner {
	return view.New(view.Options{
		Homes: m.paths.homes,
		Own:   []string{m.opt.Homes, m.opt.State, m.opt.Run, m.opt.Private, m.opt.Userdb},
		Units: m.units, Shim: m.paths.shim, Programs: m.programs, Layers: m.layers, Log: m.log,
	})
}

// viewer returns the chat as package view knows it.
func (m *Manager) viewer(rec state.Record) view.Chat {
	p := m.profile(rec)
	return view.Chat{
		ID: rec.ID, UID: rec.UID, Profile: p, Env: rec.Env, Home: m.home(rec.ID),
		Tmp: filepath.Join(m.paths.tmp, rec.ID.User()), VarTmp: filepath.Join(m.paths.varTmp, rec.ID.User()),
		Dir: m.sessionDir(rec.ID, rec.UID), Network: m.layers.Network(p), Denied: m.policy.Closed(m.chatOf(rec)),
		Secrets: m.secretVars(rec), OwnTrust: m.usesSecrets(rec),
	}
}

// exposedView is what a session of the chat would see if it began now, with what was asked for
// and is not in it.
func (m *Manager) exposedView(rec state.Record) (plan.View, []string, error) {
	v, notes, err := m.views.Next(m.viewer(rec))
	v.Masked = m.policy.Masks(m.chatOf(rec), v)
	return v, notes, err
}

// preparedView is exposedView with the home made ready for it. The caller holds the chat's lock.
func (m *Manager) preparedView(rec state.Record) (plan.View, []string, error) {
	v, notes, err := m.exposedView(rec)
	if err == nil {
		err = m.views.MakeMountPoints(m.viewer(rec), v.Exposed)
	}
	return v, notes, err
}

// sessionView is what the session sees since it began, whatever the config says by now.
func (m *Manager) sessionView(rec state.Record, s *liveSession) plan.View {
	c := m.viewer(rec)
	if s.Plan != nil && s.Plan.Profile != rec.Profile { // what it sees is of its profile then
		now := c.Profile
		c.Profile = m.policy.Profile(s.Plan.Profile)
		c.Network = m.layers.Network(c.Profile)
		c.Profile.Env, c.Profile.Limits = now.Env, now.Limits
	}
	c.OwnTrust = c.OwnTrust && c.Dir.HasTrust() // it may have begun before there were secrets
	v := m.views.Of(c)
	v.Exposed = s.Exposed
	return v
}

// CheckView checks on this host everything that a profile exposes; see [view.Planner.Check].
func CheckView(opt Options, p chat.Profile) error {
	_, _, err := newManager(opt).lookAtView(p)
	return err
}

// lookAtView returns what a session of the profile would see of the host.
func (m *Manager) lookAtView(p chat.Profile) (all []chat.Exposed, notes []string, err error) {
	return m.views.Check(view.Chat{UID: m.probeUID(), Home: m.home(probeID), Profile: p})
}

// checkViews checks the view of every profile before the first session is started.
func (m *Manager) checkViews() error {
	for name, p := range m.opt.Profiles {
		_, notes, err := m.lookAtView(p)
		if err != nil {
			return fmt.Errorf("cannot use profile %s: %w", name, err)
		}
		for _, n := range notes {
			m.log.Info("a profile opens less of the host than it may seem", "profile", name, "why", n)
		}
	}
	return nil
}

// Plan tells what the session of the chat was started from or, while the chat is asleep, what it
// would be. Only an operator may ask: it names paths of the host.
func (m *Manager) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Plan{}, err
	}
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return chat.Plan{}, fmt.Errorf("cannot tell the plan of chat %s: it names paths of the host, and is for operators: %w", id, chat.ErrDenied)
	}
	s := m.session(id)
	if s != nil && s.Init.Alive() {
		return *s.Plan, nil
	}
	v, notes, err := m.exposedView(rec)
	if err != nil {
		return chat.Plan{}, err
	}
	spec := m.spec(rec, v)
	spec.Argv = session.TerminalArgv(v)
	return m.startOf(rec, spec, notes).Describe(), nil
}

// startOf is the spec as a plan tells it.
func (m *Manager) startOf(rec state.Record, spec session.Spec, notes []string) view.Start {
	s := view.Start{
		Chat: rec.ID, Profile: rec.Profile, View: spec.View, Plan: m.starter.Plan(spec),
		Apart: m.starter.KeepsApart(spec.View), Notes: notes,
	}
	if m.policy.Enforced(m.chatOf(rec)) {
		s.Rules = m.policy.File(rec.Profile).Name
	}
	return s
}

// seen is what a session sees of the host, for the audit log; nil if nothing.
func seen(s *liveSession) map[string]string {
	if s == nil || len(s.Exposed) == 0 {
		return nil
	}
	const maxNotes = 50
	var all []string
	for _, e := range s.Exposed[:min(maxNotes, len(s.Exposed))] {
		all = append(all, fmt.Sprintf("%s at %s %s", chat.QuotePath(e.Source), chat.QuotePath(e.Target), e.Mode))
	}
	return map[string]string{"exposed": strings.Join(all, " "), "paths": fmt.Sprint(len(s.Exposed))}
}
