package provision

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// Package policy has the rules in force. This file tells it of the chats and of what profiles
// expose, and ends sessions whose rules cannot be kept.

// chatOf is a chat, as its rules need it.
func (m *Manager) chatOf(rec state.Record) policy.Chat {
	return policy.Chat{
		ID: rec.ID, UID: rec.UID, Profile: rec.Profile, Agent: rec.Agent, Home: m.home(rec.ID),
		Egress: rec.EgressChange(),
	}
}

func (m *Manager) raiseEnforcer(ctx context.Context) error {
	return m.policy.Raise(ctx, m.allChats())
}

func (m *Manager) allChats() (all []policy.Chat) {
	for _, rec := range m.store.All() {
		all = append(all, m.chatOf(rec))
	}
	return all
}

// profile is the chat's policy; see [policy.InForce.Profile]. Its egress and limits are the chat's
// own.
func (m *Manager) profile(rec state.Record) chat.Profile {
	p := m.policy.Profile(rec.Profile).With(rec.EgressChange())
	if len(rec.Limits) > 0 {
		if l, err := rec.Limits.Apply(p.Limits); err == nil { // else a later chatd wrote it
			p.Limits = l
		}
	}
	return p.As(rec.Agent)
}

// sharedTrees returns the trees that every session of a profile sees and no chat can write to. A
// chat that could write there could keep an operator's rules from loading.
func (m *Manager) sharedTrees(profile string) []chat.Exposed {
	if m.without(chat.LayerView) {
		return nil
	}
	trees := policy.SystemTrees()
	all, _, err := m.lookAtView(m.opt.Profiles[profile])
	if err != nil {
		m.log.Warn("what a profile exposes cannot be looked at; its file rules are not counted there", "profile", profile, "why", err)
	}
	for _, e := range all {
		if e.Mode == chat.ReadOnly && !exposure.Writable(m.opt.Profiles, e.Source) {
			trees = append(trees, e)
		}
	}
	return trees
}

// auditDeniedTo audits an act of the chat itself that its policy denied. An error is only logged.
func (m *Manager) auditDeniedTo(ctx context.Context, id chat.ID, action string, detail map[string]string) {
	rec, err := m.store.Get(id)
	if err != nil {
		return // reaped meanwhile
	}
	if err := m.audit(ctx, rec, action, "denied", detail); err != nil {
		m.log.Error("cannot audit what was denied", "action", action, "chat", id, "error", err)
	}
}

// shimPolicy is the policy that the shims of a chat check against; see [policy.InForce.ForShims].
func (m *Manager) shimPolicy(rec state.Record) []byte {
	return m.policy.ForShims(m.chatOf(rec))
}

// renewRules applies the current rules to an awake chat, or ends its session. The caller holds
// the chat's lock.
func (m *Manager) renewRules(ctx context.Context, rec state.Record, s *liveSession) error {
	c := m.chatOf(rec)
	err := m.policy.Apply(ctx, c, s.Init)
	if err == nil {
		return m.policy.ForgetMasks(c, s.Session, m.sessionDir(rec.ID, rec.UID))
	}
	m.log.Error("ending a session whose file rules cannot be kept", "chat", rec.ID, "why", err)
	ctx = context.WithoutCancel(ctx)
	why := map[string]string{"why": "its file rules cannot be kept"}
	return errors.Join(err, m.auditOutcome(ctx, rec, "sleep", why, m.backwards(ctx, "sleep", awakeSteps(), rec)))
}

// checkKept checks that the enforcer still enforces the rules of a session, and applies them again
// if not. Until then, the chat could read files made later, unless the groups of the enforcer
// before are held ([policy.InForce.Follow]).
func (m *Manager) checkKept(ctx context.Context, rec state.Record, s *liveSession) error {
	if m.policy.Kept(ctx, m.chatOf(rec), s.Init) {
		return nil
	}
	m.log.Error("the enforcer did not enforce the rules of a session; unless its groups were held, files made later could be read until now", "chat", rec.ID)
	return m.renewRules(ctx, rec, s)
}
