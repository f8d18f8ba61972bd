package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
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
		if err := m.unarchiveFor(ctx, spec.Owner, spec.ExternalID); err != nil {
			return chat.Chat{}, false, err
		}
	}
	rec, created, err := m.admit(ctx, caller, spec)
	if err != nil {
		return chat.Chat{}, false, err
	}
	if !created {
		if err := sameSpec(rec, asked); err != nil {
			return chat.Chat{}, false, err
		}
	}
	sys.Failpoint("create.record.after")
	unlock, err := m.locks.lock(ctx, rec.ID)
	if err != nil {
		return chat.Chat{}, created, err
	}
	defer unlock()
	rec, err = m.createLocked(ctx, rec.ID)
	if err != nil {
		return chat.Chat{}, created, err
	}
	if spec.WantsSession() {
		if rec, _, err = m.wakeLocked(ctx, rec.ID); err != nil {
			return chat.Chat{}, created, err
		}
	}
	m.touch(rec)
	shown := m.show(ctx, rec)
	if !created {
		shown.Ignored = append(unlike(rec, asked), asked.Unlike(rec.Labels, rec.EgressChange())...)
	}
	return shown, created, nil
}

// admit finds the chat's record, or makes one if the caller may have a new chat. An existing
// chat needs no permission: it keeps its profile, whatever the config says later.
func (m *Manager) admit(ctx context.Context, caller chat.Caller, spec chat.Spec) (state.Record, bool, error) {
	rec, err := m.store.Find(spec.Owner, spec.ExternalID)
	if err == nil {
		return rec, false, nil
	}
	if err := m.mayUse(caller, spec.Profile); err != nil {
		return rec, false, err
	}
	change := chat.EgressChange{Add: spec.EgressAdd, Remove: spec.EgressRemove}
	if err := m.policy.Profile(spec.Profile).CheckEgress(change); err != nil {
		return rec, false, m.refused(caller, state.Record{}, "create", "egress_may_add", err)
	}
	if err := m.mayBegin(ctx); err != nil {
		return rec, false, err
	}
	if err := m.policy.Raise(ctx, []policy.Chat{{Profile: spec.Profile, Agent: spec.Agent}}); err != nil {
		return rec, false, err
	}
	if err := m.shares.Create(ctx, spec.Owner); err != nil {
		return rec, false, err
	}
	if err := m.ensureBlock(ctx, spec.Profile); err != nil {
		return rec, false, err
	}
	return m.shares.Admit(ctx, spec, state.Event{Action: "create", Outcome: "intent", Caller: caller})
}

// mayUse refuses, and audits, a caller who may make no chats in the profile.
func (m *Manager) mayUse(caller chat.Caller, profile string) error {
	if m.opt.Profiles[profile].MayUse(caller) {
		return nil
	}
	err := fmt.Errorf("cannot create a chat in profile %s: owner %s is not among its bridges: an operator can add the name to the profile's key bridges in chatd's config: %w",
		chat.Quote(profile), chat.Quote(caller.Name), chat.ErrDenied)
	return errors.Join(m.auditRefusal(caller, map[string]string{"profile": profile, "rule": "bridges"}), err)
}

// auditRefusal audits a create that was refused before anything was made.
func (m *Manager) auditRefusal(caller chat.Caller, detail map[string]string) error {
	return m.store.Audit(state.Event{Action: "create", Outcome: "denied", Caller: caller, Detail: detail})
}

// createLocked takes the steps that a chat still lacks. The caller holds the chat's lock; a
// second caller finds the chat ready.
func (m *Manager) createLocked(ctx context.Context, id chat.ID) (state.Record, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return rec, fmt.Errorf("cannot create chat %s: it was taken away meanwhile: %w", id, chat.ErrBusy)
	}
	switch rec.Phase {
	case chat.Ready:
		return rec, nil
	case chat.Reaping:
		return rec, fmt.Errorf("cannot create the chat yet: chat %s is still being removed: %w",
			id, chat.ErrBusy)
	}
	if rec.Unarchives != "" {
		return rec, errors.Join(errCutOff(rec), m.giveUpUnarchive(ctx, rec))
	}
	if err := m.mayBegin(ctx); err != nil {
		return rec, err
	}
	leave, err := m.acquireStart(ctx, rec, "create")
	if err != nil {
		return rec, err
	}
	defer leave()
	if err := m.forwards(ctx, "create", asleepSteps(), rec); err != nil {
		undone := m.giveUp(ctx, rec, "create", err)
		if undone != nil { // logged too: the caller may be gone
			m.log.Error("cannot take back a chat that could not be created", "chat", rec.ID, "err", undone)
		}
		return rec, errors.Join(err, undone)
	}
	if err := m.store.SetPhase(id, chat.Ready, m.event(ctx, rec, "create", "done", nil)); err != nil {
		return rec, err
	}
	return m.store.Get(id)
}

// giveUp removes a chat that could not be created. If the removal fails too, the record stays
// in phase reaping, and reconcile finishes it.
func (m *Manager) giveUp(ctx context.Context, rec state.Record, verb string, why error) error {
	ctx = context.WithoutCancel(ctx)
	failed := m.event(ctx, rec, verb, "failed", map[string]string{"error": why.Error()})
	if err := m.store.SetPhase(rec.ID, chat.Reaping, failed); err != nil {
		return err
	}
	return m.reapLocked(ctx, rec)
}

// checkSpec checks the caller's request before anything is made.
func (m *Manager) checkSpec(caller chat.Caller, spec chat.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if !caller.MayReach(spec.Owner) {
		err := fmt.Errorf("cannot create a chat of owner %s: only an operator may name another: %w", chat.Quote(spec.Owner), chat.ErrDenied)
		return errors.Join(m.auditRefusal(caller, map[string]string{"owner": spec.Owner}), err)
	}
	if _, ok := m.opt.Profiles[spec.Profile]; !ok {
		return fmt.Errorf("cannot use profile %s: there is none of that name: %w", chat.Quote(spec.Profile), chat.ErrInvalid)
	}
	return nil
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
	if slices.Contains(differs, "profile") {
		return fmt.Errorf("cannot create this chat with profile %s: it is there as chat %s with profile %s: %w",
			chat.Quote(asked.Profile), rec.ID, rec.Profile, chat.ErrExists)
	}
	if asked.Agent != "" && asked.Agent != rec.Agent {
		return fmt.Errorf("cannot create this chat with agent %s: it is there as chat %s with agent %s: %w",
			chat.Quote(asked.Agent), rec.ID, rec.Agent, chat.ErrExists)
	}
	if slices.Contains(differs, "env") {
		return fmt.Errorf("cannot create this chat with this env: it is there as chat %s with another: %w", rec.ID, chat.ErrExists)
	}
	return nil
}
