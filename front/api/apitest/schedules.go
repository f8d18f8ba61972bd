package apitest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

// PutSchedule keeps a schedule. Nothing runs by itself: see [Memory.Due].
func (m *Memory) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Schedule{}, err
	}
	if _, err := (chat.Profile{Name: c.Profile}).RunTimeout(n.Spec.Timeout,
		chat.DefaultScheduleTimeout); err != nil {
		return chat.Schedule{}, err
	}
	if len(m.schedules[id]) >= chat.MaxSchedules {
		return chat.Schedule{}, fmt.Errorf("cannot add a schedule to chat %s: it has %d, which is the most: remove one: %w", id, chat.MaxSchedules, chat.ErrBusy)
	}
	m.nextSchedule++
	s := chat.Schedule{ID: fmt.Sprintf("s%d", m.nextSchedule), Spec: n.Spec, CreatedAt: n.Made,
		CreatedBy: chat.CallerFrom(ctx).Name, Next: &n.Next}
	m.schedules[id] = append(m.schedules[id], s)
	return s, nil
}

// Schedules lists them.
func (m *Memory) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.reach(ctx, id)
	return chat.Schedules{Schedules: append([]chat.Schedule{}, m.schedules[id]...)}, err
}

// Schedule shows one.
func (m *Memory) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.findSchedule(ctx, id, name)
	if err != nil {
		return chat.Schedule{}, err
	}
	return m.schedules[id][i], nil
}

// RemoveSchedule forgets one.
func (m *Memory) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, err := m.findSchedule(ctx, id, name)
	if err != nil {
		return err
	}
	m.schedules[id] = slices.Delete(m.schedules[id], i, i+1)
	return nil
}

func (m *Memory) findSchedule(ctx context.Context, id chat.ID, name string) (int, error) {
	if _, err := m.reach(ctx, id); err != nil {
		return 0, err
	}
	i := slices.IndexFunc(m.schedules[id], func(s chat.Schedule) bool { return s.ID == name })
	if i < 0 {
		return 0, fmt.Errorf("cannot find schedule %s: %w", chat.Quote(name), chat.ErrNotFound)
	}
	return i, nil
}

// Due runs every schedule of a chat, as if its time had come, at the given time.
func (m *Memory) Due(id chat.ID, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.schedules[id] {
		s := &m.schedules[id][i]
		argv := s.Spec.Argv
		if s.Spec.Command != "" {
			argv = []string{s.Spec.Command}
		}
		r := command(argv, s.Spec.Run(), m.chats[id].Home)
		s.Runs++
		s.Last = &chat.ScheduleResult{Run: "run-of-" + s.ID, DueAt: at, StartedAt: at, WallMS: 1500,
			Exit: r.Exit, Signal: r.Signal, TimedOut: r.TimedOut,
			OOMKilled: r.OOMKilled, EndedBy: r.EndedBy, Output: r.Stdout + r.Stderr,
			OutputBytes: int64(len(r.Stdout + r.Stderr))}
		if argv[0] == "refused" {
			s.Skipped, s.Missed = 2, 3
			s.Last = &chat.ScheduleResult{DueAt: at, StartedAt: at, Exit: -1,
				Error: "cannot run: it is refused: denied", DeniedBy: "rm-rf"}
		}
		if s.Spec.At != "" {
			s.Next = nil
		}
	}
}
