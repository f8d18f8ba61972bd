package provision

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Patch changes the labels of a chat. It waits for nobody: they are notes, which nothing
// here acts on.
func (m *Manager) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	if err := m.store.Patch(id, p, m.event(ctx, rec, "patch", "done", patchDetail(p))); err != nil {
		return chat.Chat{}, err
	}
	return m.Get(ctx, id)
}

// patchDetail is a change as the audit log has it: the names of labels, and not what the
// caller noted in them.
func patchDetail(p chat.Patch) map[string]string {
	d := map[string]string{}
	if p.NoLabels {
		d["labels"] = "removed"
	}
	for name, v := range p.Labels {
		d["label."+name] = "set"
		if v == nil {
			d["label."+name] = "removed"
		}
	}
	return d
}
