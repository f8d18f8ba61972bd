package provision

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/enforcer"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/verdict"
)

// Package enforcer starts the enforcer and gives it orders. This file says when one is needed.

// raiseEnforcer starts the enforcer for the existing chats: a host that cannot enforce their rules
// reports that at start, and not at a wake. A profile without chats needs no enforcer: chatd
// ships profiles with rules, and not every host can enforce rules.
func (m *Manager) raiseEnforcer(ctx context.Context) error {
	return m.enforcerForChats(ctx, m.access.Load().Policies())
}

// enforcerForChats starts the enforcer if these policies have rules for it in an existing chat.
func (m *Manager) enforcerForChats(ctx context.Context, policies map[string]*filerules.Policy) error {
	book := verdict.NewBook(policies)
	for _, rec := range m.store.All() {
		if enforce.Needed(book.Policy(rec.Profile), rec.Agent) {
			return m.enforcerOf(ctx, rec.Profile)
		}
	}
	return nil
}

// enforcerForNew starts the enforcer before a chat is made whose rules need it: otherwise the chat
// could never be woken.
func (m *Manager) enforcerForNew(ctx context.Context, spec chat.Spec) error {
	if !enforce.Needed(m.access.Load().Policy(spec.Profile), spec.Agent) {
		return nil
	}
	return m.enforcerOf(ctx, spec.Profile)
}

func (m *Manager) enforcerOf(ctx context.Context, profile string) error {
	if err := m.enforcer.Start(ctx); err != nil {
		return fmt.Errorf("cannot use the file rules of profile %s: %w", profile, err)
	}
	return nil
}

// enforcerFindings starts the enforcer if any profile has rules for it, even before a chat needs
// it. If that fails, its finding names the profiles in which this host can make no chats.
func (m *Manager) enforcerFindings(ctx context.Context) []string {
	names := m.enforcedProfiles()
	if len(names) == 0 {
		return nil
	}
	if err := m.enforcer.Start(ctx); err != nil {
		return []string{fmt.Sprintf("no chat with file rules can be made, in profiles %s: %v", strings.Join(names, ", "), err)}
	}
	return nil
}

// enforcedProfiles returns the profiles with rules that the kernel enforces.
func (m *Manager) enforcedProfiles() []string {
	policies := m.access.Load().Policies()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(policies)), func(name string) bool { return !enforce.NeededBy(policies[name]) })
}

// needsEnforcer reports whether a session has rules that the enforcer enforces. A session that has
// just ended counts: the enforcer has its last refusals until the chat sleeps.
func (m *Manager) needsEnforcer() bool {
	for _, s := range m.allSessions() {
		if rec, err := m.store.Get(s.id); err == nil && enforce.Needed(m.policy(rec), rec.Agent) {
			return true
		}
	}
	return false
}

// sessionOf names the chat's session to the enforcer, by its init process.
func sessionOf(rec state.Record, l *sys.HeldProcess) enforcer.Session {
	return enforcer.Session{Chat: rec.ID, PID: l.PID, Start: l.Start}
}
