package provision

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
)

// vague reports whether the caller is told no more of the chat's file rules than that
// they deny: the profile says `messages: vague`, and who asks is no operator, who may
// read the file of rules anyway. What the bridge is told an agent may be told.
func (m *Manager) vague(ctx context.Context, rec state.Record) bool {
	return m.policy(rec).Terse && chat.CallerFrom(ctx).Role != chat.RoleOperator
}

// told is err as the caller may know it. It comes after the audit log, which has all.
func (m *Manager) told(ctx context.Context, rec state.Record, err error) error {
	var d *files.Denial
	if errors.As(err, &d) && (byRules(d) || d.Errno != "") && m.vague(ctx, rec) {
		d.Path, d.Rule, d.Place, d.Layer = "", "", "", ""
	}
	return err
}

// byRules reports a denial that [judgeOf] made of a rule.
func byRules(d *files.Denial) bool {
	switch filerules.Layer(d.Layer) {
	case filerules.LayerAgentRules, filerules.LayerAgentDeny, filerules.LayerGlobalRules, filerules.LayerGlobalDeny, filerules.LayerDefaults:
		return true
	}
	return false
}
