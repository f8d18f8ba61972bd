package apitest

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Terms have no guard. With these methods a Memory is a verbs.Root too; it keeps no clock.
func (m *Memory) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	c, err := m.Get(ctx, id)
	return chat.Terms{Home: c.Home}, err
}

// RefuseRun writes nothing.
func (m *Memory) RefuseRun(ctx context.Context, id chat.ID, _ chat.RefusedRun) error {
	_, err := m.Get(ctx, id)
	return err
}

// KeptSchedules lists those of all chats.
func (m *Memory) KeptSchedules(_ context.Context, out func(chat.StoredSchedule) error) error {
	m.mu.Lock()
	var all []chat.StoredSchedule
	for id, list := range m.schedules {
		for _, s := range list {
			all = append(all, chat.StoredSchedule{Schedule: s, Chat: id, Owner: m.chats[id].Owner})
		}
	}
	m.mu.Unlock()
	for _, k := range all {
		if err := out(k); err != nil {
			return err
		}
	}
	return nil
}

// KeptSchedule is one of them.
func (m *Memory) KeptSchedule(_ context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.schedules[id] {
		if s.ID == name {
			return chat.StoredSchedule{Schedule: s, Chat: id, Owner: m.chats[id].Owner}, nil
		}
	}
	return chat.StoredSchedule{}, fmt.Errorf("cannot find schedule %s: %w",
		chat.Quote(name), chat.ErrNotFound)
}

// BeginDue runs the schedule as [Memory.Due] does.
func (m *Memory) BeginDue(ctx context.Context, d chat.DueSchedule) (bool, error) {
	if _, err := m.KeptSchedule(ctx, d.Chat, d.ID); err != nil {
		return false, err
	}
	m.Due(d.Chat, d.At)
	return false, nil
}

// AwaitDue has nothing to wait for.
func (m *Memory) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	_, err := m.KeptSchedule(ctx, d.Chat, d.ID)
	return err
}

// AddSkipped adds nothing.
func (m *Memory) AddSkipped(ctx context.Context, d chat.DueSchedule) error { return m.AwaitDue(ctx, d) }
