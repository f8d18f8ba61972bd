package provision

import (
	"context"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/state"
)

// tookEvents counts what chatd-egress reports of a chat.
func (m *Manager) tookEvents(id chat.ID, events []chat.EgressEvent) {
	m.traffic.Add(id, events)
	m.runs.Refused(id, events)
	if !m.hasChat(id) { // reaped meanwhile
		m.traffic.Forget(id)
	}
}

// denied returns what the chat was refused during a run, as its enforcer and chatd-egress know by
// now, or in a moment.
func (m *Manager) denied(rec state.Record, r *background.Run) []chat.Denied {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	m.policy.TakeRefused(ctx, m.chatOf(rec))
	m.gateway.Connections(ctx, rec.ID) // before it answers it tells what it refused
	return r.Denied()
}

// EgressLog returns what became of the chat's connections since chatd-root began, and what is
// carried now.
func (m *Manager) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.EgressLog{}, err
	}
	open := m.gateway.Connections(ctx, rec.ID) // what ends meanwhile is told twice, not never
	l := m.traffic.Of(rec.ID)
	l.Open = open
	return l, nil
}
