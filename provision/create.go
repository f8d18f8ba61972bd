package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// Create returns a conversation's chat, and makes it if there is none. It is idempotent: among
// concurrent callers, created is true for exactly one. The record is durable before the first
// step.
func (m *Manager) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	caller := chat.CallerFrom(ctx)
	spec.Profile = m.profileName(spec.Profile)
	asked := spec
	spec = spec.WithDefaults(caller.Name)
	if err := m.checkSpec(caller, spec); err != nil {
		return chat.Chat{}, false, err
	}
	if spec.Unarchive {
		if err := m.archiver.unarchiveFor(ctx, spec.Owner, spec.ExternalID); err != nil {
			return chat.Chat{}, false, err
		}
	}
	st := m.starts.New()
	defer st.End()
	rec, created, err := m.admit(ctx, caller, spec, st)
	if err != nil {
		return chat.Chat{}, false, err
	}
	if !created {
		if err := sameSpec(rec, asked); err != nil {
			return chat.Chat{}, false, err
		}
	}
	sys.Failpoint("create.record.after")
	unlock, err := m.chats.locks.Lock(ctx, rec.ID)
	if err != nil {
		return chat.Chat{}, created, err
	}
	defer unlock()
	c, err := m.createLocked(ctx, rec.ID, st)
	if err == nil && spec.WantsSession() {
		_, err = m.wakeLocked(ctx, c, st)
	}
	if err != nil {
		return chat.Chat{}, created, err
	}
	m.chats.touch(c.ID)
	shown := m.show(ctx, c)
	if !created {
		shown.Ignored = append(unlike(c.Record, asked), asked.Unlike(c.Labels, c.EgressChange())...)
	}
	return shown, created, nil
}

// admit finds the chat's record, or makes one if the caller may have a new chat. An existing
// chat needs no permission: it keeps its profile, whatever the config says later.
func (m *Manager) admit(
	ctx context.Context, caller chat.Caller, spec chat.Spec, st *admission.Start,
) (state.Record, bool, error) {
	rec, err := m.store.Find(spec.Owner, spec.ExternalID)
	if err == nil {
		return rec, false, nil
	}
	if err := m.mayUse(caller, spec.Profile); err != nil {
		return rec, false, err
	}
	change := chat.EgressChange{Add: spec.EgressAdd, Remove: spec.EgressRemove}
	if err := m.policy.Profile(spec.Profile).CheckEgress(change); err != nil {
		return rec, false, m.trail.Refused(caller, state.Record{}, "create", "egress_may_add", err)
	}
	c := policy.Chat{Profile: spec.Profile, Agent: spec.Agent}
	if err := m.mayMake(ctx, spec.Owner, c, st); err != nil {
		return rec, false, err
	}
	return m.shares.Admit(ctx, spec, state.Event{Action: "create", Outcome: "intent", Caller: caller})
}

// mayMake refuses a new chat for which the host has no walls, its owner no share, or its profile no uid.
func (l *life) mayMake(ctx context.Context, owner string, c policy.Chat, st *admission.Start) error {
	return inOrder(ctx, st.MayBegin,
		func(ctx context.Context) error { return l.policy.Raise(ctx, []policy.Chat{c}) },
		func(ctx context.Context) error { return l.shares.Create(ctx, owner) },
		func(ctx context.Context) error { return l.packets.EnsureBlock(ctx, c.Profile) })
}

// mayUse refuses, and audits, a caller who may make no chats in the profile.
func (l *life) mayUse(caller chat.Caller, profile string) error {
	if l.opt.Profiles[profile].MayUse(caller) {
		return nil
	}
	return l.trail.RefusedCreate(caller, audit.Detail{"profile": profile, "rule": "bridges"},
		fmt.Errorf("cannot create a chat in profile %s: owner %s is not among its bridges: an operator can "+
			"add the name to the profile's key bridges in chatd's config: %w",
			chat.Quote(profile), chat.Quote(caller.Name), chat.ErrDenied))
}

// createLocked takes the steps that a chat still lacks. The caller holds the chat's lock; a
// second caller finds the chat ready.
func (l *life) createLocked(ctx context.Context, id chat.ID, st *admission.Start) (subject, error) {
	c, err := l.chats.get(id)
	if err != nil {
		return c, fmt.Errorf("cannot create chat %s: it was taken away meanwhile: %w", id, chat.ErrBusy)
	}
	switch c.Phase {
	case chat.Ready:
		return c, nil
	case chat.Reaping:
		return c, fmt.Errorf("cannot create the chat yet: chat %s is still being removed: %w",
			id, chat.ErrBusy)
	}
	if c.Unarchives != "" {
		return c, errors.Join(l.giveUpUnarchive(ctx, c))
	}
	if err := st.MayBegin(ctx); err != nil {
		return c, err
	}
	if err := st.Enter(ctx, c.ID, c.Owner, "create"); err != nil {
		return c, err
	}
	if err := l.asleepSteps().forwards(ctx, l.log, "create", c); err != nil {
		undone := l.giveUp(ctx, c, "create", err)
		if undone != nil { // logged too: the caller may be gone
			l.log.Error("cannot take back a chat that could not be created", "chat", id, "err", undone)
		}
		return c, errors.Join(err, undone)
	}
	if err := l.store.SetPhase(id, chat.Ready,
		l.trail.Event(ctx, c.Record, "create", "done", nil)); err != nil {
		return c, err
	}
	return l.chats.get(id)
}

// giveUp removes a chat that could not be created. If the removal fails too, the record stays
// in phase reaping, and reconcile finishes it.
func (l *life) giveUp(ctx context.Context, rec subject, verb string, why error) error {
	ctx = context.WithoutCancel(ctx)
	failed := l.trail.Event(ctx, rec.Record, verb, "failed", map[string]string{"error": why.Error()})
	if err := l.store.SetPhase(rec.ID, chat.Reaping, failed); err != nil {
		return err
	}
	return l.reapLocked(ctx, rec)
}

// checkSpec checks the caller's request before anything is made.
func (m *Manager) checkSpec(caller chat.Caller, spec chat.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if !caller.MayReach(spec.Owner) {
		return m.trail.RefusedCreate(caller, audit.Detail{"owner": spec.Owner},
			fmt.Errorf("cannot create a chat of owner %s: only an operator may name another: %w",
				chat.Quote(spec.Owner), chat.ErrDenied))
	}
	return m.checkName(spec.Profile)
}

// checkName refuses the name of a profile that there is not.
func (m *Manager) checkName(profile string) error {
	if _, known := m.opt.Profiles[profile]; known {
		return nil
	}
	return chat.Invalid("cannot use profile %s: there is none of that name", chat.Quote(profile))
}

// profileName is the profile that a name means: shell is default, unless it is configured.
func (m *Manager) profileName(name string) string {
	if _, own := m.opt.Profiles[name]; name == chat.ShellProfile && !own {
		return chat.DefaultProfile
	}
	return name
}

// unlike names what of profile and environment the existing chat has otherwise, where a patch
// changed them: a bridge that asks for its chat as ever still finds it.
func unlike(rec state.Record, asked chat.Spec) (names []string) {
	if asked.Profile != "" && asked.Profile != rec.Profile {
		names = append(names, "profile")
	}
	if asked.Env != nil && !maps.Equal(asked.Env, rec.Env) {
		names = append(names, "env")
	}
	return names
}

// sameSpec refuses a call whose profile, agent or environment differs from the existing chat's,
// unless a patch changed it since.
func sameSpec(rec state.Record, asked chat.Spec) error {
	differs := slices.DeleteFunc(unlike(rec, asked), func(name string) bool {
		return slices.Contains(rec.Patched, name)
	})
	with := func(what, is string) error {
		return fmt.Errorf("cannot create this chat with %s: it is there as chat %s with %s: %w", what, rec.ID,
			is, chat.ErrExists)
	}
	switch {
	case slices.Contains(differs, "profile"):
		return with("profile "+chat.Quote(asked.Profile), "profile "+rec.Profile)
	case asked.Agent != "" && asked.Agent != rec.Agent:
		return with("agent "+chat.Quote(asked.Agent), "agent "+rec.Agent)
	case slices.Contains(differs, "env"):
		return with("this env", "another")
	}
	return nil
}
