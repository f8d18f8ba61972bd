package provision

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/schedule"
	"github.com/chatd/chatd/state"
)

// AddSchedule has the chat run a command by the clock, as the caller. The command is
// judged now, so that who asks hears at once what is wrong with it, and again each time
// it runs.
func (m *Manager) AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error) {
	now := m.opt.Clock.Now().Round(0).UTC()
	when, err := schedule.Parse(spec, now)
	if err != nil {
		return chat.Schedule{}, err
	}
	next := when.Next(now)
	if next.IsZero() {
		return chat.Schedule{}, fmt.Errorf("cannot schedule: at %s: want a time to come, it is %s: %w", chat.Quote(spec.At), now.Format(time.RFC3339), chat.ErrInvalid)
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Schedule{}, err
	}
	if _, err := m.profile(rec).RunTimeout(spec.Timeout, chat.DefaultScheduleTimeout); err != nil {
		return chat.Schedule{}, err
	}
	if err := m.judgeRun(ctx, rec, spec.Run()); err != nil {
		return chat.Schedule{}, err
	}
	name, err := newScheduleID()
	if err != nil {
		return chat.Schedule{}, err
	}
	by := chat.CallerFrom(ctx)
	s := state.Schedule{By: by, Schedule: chat.Schedule{ID: name, Spec: spec, CreatedAt: now, CreatedBy: by.Name, Next: &next}}
	event := m.event(ctx, rec, "schedule", "done", scheduleDetail(s))
	event.Argv = runArgv(spec.Run())
	if err := m.store.AddSchedule(id, s, event); err != nil {
		return chat.Schedule{}, err
	}
	m.schedules.Add(id, name, next, spec.Cron != "")
	return m.showSchedule(id, s), nil
}

// scheduleDetail is a schedule as the audit log has it.
func scheduleDetail(s state.Schedule) map[string]string {
	d := map[string]string{"schedule": s.ID}
	for key, text := range map[string]string{"cron": s.Spec.Cron, "at": s.Spec.At, "time_zone": s.Spec.TimeZone} {
		if text != "" {
			d[key] = auditText(text)
		}
	}
	if s.Spec.Every != 0 {
		d["every"] = s.Spec.Every.String()
	}
	return d
}

func newScheduleID() (string, error) {
	var b [6]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return "", fmt.Errorf("cannot name a schedule: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// Schedules are those of a chat, in the order in which they were made.
func (m *Manager) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	out := chat.Schedules{Schedules: []chat.Schedule{}}
	if _, err := m.reach(ctx, id); err != nil {
		return out, err
	}
	all, err := m.store.Schedules(id)
	for _, s := range all {
		out.Schedules = append(out.Schedules, m.showSchedule(id, s))
	}
	return out, err
}

// Schedule is one of a chat's.
func (m *Manager) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	if _, err := m.reach(ctx, id); err != nil {
		return chat.Schedule{}, err
	}
	s, err := m.store.Schedule(id, name)
	if err != nil {
		return chat.Schedule{}, err
	}
	return m.showSchedule(id, s), nil
}

// showSchedule adds what only the runner knows: it writes down what came due when a run
// begins and when it ends.
func (m *Manager) showSchedule(id chat.ID, s state.Schedule) chat.Schedule {
	out := s.Schedule
	next, skipped, ok := m.schedules.Look(id, s.ID)
	out.Skipped += skipped
	switch {
	case !ok:
	case next.IsZero():
		out.Next = nil
	default:
		out.Next = &next
	}
	return out
}

// RemoveSchedule forgets a schedule. A run of it that is under way goes on.
func (m *Manager) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	s, err := m.store.Schedule(id, name)
	if err != nil {
		return err
	}
	if err := m.store.RemoveSchedule(id, name, m.event(ctx, rec, "unschedule", "done", scheduleDetail(s))); err != nil {
		return err
	}
	m.schedules.Remove(id, name)
	return nil
}

// loadSchedules has every schedule that is kept come due again, waits for the runs of an
// earlier chatd that go on, and ends on paper those that a crash cut off.
func (m *Manager) loadSchedules(context.Context) error {
	type cut struct {
		chat chat.ID
		name string
	}
	var cuts []cut
	now := m.opt.Clock.Now()
	err := m.store.EachSchedule(func(rec state.Record, s state.Schedule) {
		if !m.loadSchedule(rec, s, now) && s.RunningSince != nil {
			cuts = append(cuts, cut{rec.ID, s.ID})
		}
	})
	var errs []error
	for _, c := range cuts {
		_, err := m.store.ChangeSchedule(c.chat, c.name, func(s *state.Schedule) {
			s.Last = &chat.ScheduleResult{DueAt: s.Due, StartedAt: *s.RunningSince, Exit: -1, Error: cutOff}
			s.RunningSince = nil
		})
		if !errors.Is(err, chat.ErrWrongPhase) {
			errs = append(errs, err)
		}
	}
	// A full disk is no reason not to start: it is written down by the next.
	m.note("schedules that were cut off", errors.Join(errs...))
	return err
}

// loadSchedule has one come due again; goesOn says that its run is still there, or how it ended.
func (m *Manager) loadSchedule(rec state.Record, s state.Schedule, now time.Time) (goesOn bool) {
	if rec.Phase == chat.Reaping {
		return false
	}
	when, err := schedule.Parse(s.Spec, s.CreatedAt)
	if err != nil {
		m.find("schedule "+s.ID+" of chat "+string(rec.ID), err)
		return false
	}
	var next time.Time
	if s.Next != nil {
		next = when.Resume(*s.Next, s.Taken, now)
	}
	if m.runTaken(rec.ID, s) != nil {
		m.schedules.GoOn(rec.ID, s.ID, s.Due, next, s.Spec.Cron != "")
		return true
	}
	m.schedules.Add(rec.ID, s.ID, next, s.Spec.Cron != "")
	return false
}

type scheduleKey struct{}

// byClock is which time of which schedule a run is for.
type byClock struct {
	schedule string
	taken    time.Time
}

// asSchedule is a context whose runs, and lines of the audit log, name the schedule they come from.
func asSchedule(ctx context.Context, by byClock) context.Context {
	return context.WithValue(ctx, scheduleKey{}, by)
}

// scheduleFrom is zero for what no schedule began.
func scheduleFrom(ctx context.Context) byClock {
	by, _ := ctx.Value(scheduleKey{}).(byClock)
	return by
}

func withSchedule(ctx context.Context, detail map[string]string) map[string]string {
	by := scheduleFrom(ctx)
	if by.schedule == "" {
		return detail
	}
	d := map[string]string{"schedule": by.schedule}
	maps.Copy(d, detail)
	return d
}
