package apitest

import (
	"context"
	"slices"

	"github.com/chatd/chatd/chat"
)

// EgressLog is what Carried has said of the chat.
func (m *Memory) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.reach(ctx, id); err != nil {
		return chat.EgressLog{}, err
	}
	l := chat.EgressLog{Entries: append([]chat.EgressEvent{}, m.carried[id]...)}
	for _, e := range l.Entries {
		l.Totals.Add(e)
	}
	l.Open = chat.NewEgressOpen(slices.Clone(m.connected[id]))
	return l, nil
}

// Connected adds a connection that is open to the chat's log of egress.
func (m *Memory) Connected(id chat.ID, c chat.EgressConnection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connected[id] = append(m.connected[id], c)
}

// Carried adds an entry to the chat's log of egress, or counts it in one that is alike.
func (m *Memory) Carried(id chat.ID, e chat.EgressEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, known := range m.carried[id] {
		if known.EgressKind == e.EgressKind {
			m.carried[id][i].Add(e)
			return
		}
	}
	m.carried[id] = append(m.carried[id], e)
}
