package provision

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Patch changes the labels of a chat. It takes no lock of the chat: nothing here acts on
// labels.
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

// patchDetail returns the audit log's detail of a change: the names of the labels, without their
// values.
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
