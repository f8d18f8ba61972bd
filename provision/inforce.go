package provision

import (
	"context"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/verdict"
)

// SetAccess sets the file rules of the profiles, by profile name. A profile that the map lacks
// gets the built-in rules.
func (m *Manager) SetAccess(policies map[string]*filerules.Policy) {
	m.access.Store(verdict.NewBook(policies))
}

// policy returns the file rules of a chat's profile, or the built-in ones.
func (m *Manager) policy(rec state.Record) *filerules.Policy {
	return m.access.Load().Policy(rec.Profile)
}

// rules returns the compiled file rules of a chat: of its profile, for its agent.
func (m *Manager) rules(rec state.Record) (*verdict.Rules, error) {
	return m.access.Load().Rules(
		verdict.Chat{Profile: rec.Profile, Agent: rec.Agent, Home: m.home(rec.ID)})
}

// closedTo returns the closed paths of a chat. If its rules do not compile, its session does not
// start, and the enforcer reports the reason.
func (m *Manager) closedTo(rec state.Record) verdict.ClosedPaths {
	rules, err := m.rules(rec)
	if err != nil {
		return verdict.ClosedPaths{}
	}
	return rules.Closed()
}

// terse reports whether the caller is told no more of the chat's file rules than that they deny:
// the profile says `messages: vague`, and the caller is no operator, who may read the file of
// rules anyway. What the bridge is told an agent may be told.
func (m *Manager) terse(ctx context.Context, rec state.Record) bool {
	return m.policy(rec).Terse && chat.CallerFrom(ctx).Role != chat.RoleOperator
}

// told is err as the caller may know it. It comes after the audit log, which has all.
func (m *Manager) told(ctx context.Context, rec state.Record, err error) error {
	return verdict.Redact(err, m.terse(ctx, rec))
}

// takeKeys sets the keys of the profiles against which runs are checked, at start.
func (m *Manager) takeKeys(context.Context) error {
	keys, err := verdict.KeysOf(m.opt.Profiles)
	m.checked.Store(&keys)
	return err
}

// profile is the chat's policy; one that was taken out of the config leaves the zero policy, which
// opens nothing. The keys may have been read again since chatd was started.
func (m *Manager) profile(rec state.Record) chat.Profile {
	p := m.opt.Profiles[rec.Profile]
	if all := m.checked.Load(); all != nil {
		if k, ok := (*all)[rec.Profile]; ok {
			p.Guard, p.ToolsOff, p.TimeoutMax = k.Guard, k.ToolsOff, k.TimeoutMax
		}
	}
	return p
}
