package provision

import (
	"cmp"
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/scheduler"
	"github.com/chatd/chatd/state"
)

// PutSchedule keeps a schedule of the caller's. Its command is checked now, so that the caller
// learns immediately of an error, and again each time it runs. Package runs knows when it comes
// due.
func (m *Manager) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	run := n.Spec.Run()
	run.Named = n.Named
	if err := cmp.Or(n.Spec.Validate(), chat.CheckNamed(n.Named)); err != nil {
		return chat.Schedule{}, err
	}
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return chat.Schedule{}, err
	}
	if _, err := rec.profile.RunTimeout(n.Spec.Timeout, chat.DefaultScheduleTimeout); err != nil {
		return chat.Schedule{}, err
	}
	if err := m.checkRun(ctx, rec, run); err != nil {
		return chat.Schedule{}, err
	}
	s := scheduler.NewSchedule(chat.CallerFrom(ctx), n)
	event := m.trail.Event(ctx, rec.Record, "schedule", "done", scheduleDetail(s))
	event.Argv = run.CommandLine()
	return s.Schedule, m.store.AddSchedule(id, s, event)
}

// scheduleDetail is a schedule as the audit log has it.
func scheduleDetail(s state.Schedule) map[string]string {
	d := map[string]string{"schedule": s.ID}
	for key, text := range map[string]string{"cron": s.Spec.Cron, "at": s.Spec.At,
		"time_zone": s.Spec.TimeZone} {
		if text != "" {
			d[key] = chat.QuotePath(text)
		}
	}
	if s.Spec.Every != 0 {
		d["every"] = s.Spec.Every.String()
	}
	return d
}

// Schedules are those of a chat, in the order in which they were made.
func (m *Manager) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	out := chat.Schedules{Schedules: []chat.Schedule{}}
	if _, err := m.chats.reach(ctx, id); err != nil {
		return out, err
	}
	all, err := m.store.Schedules(id)
	for _, s := range all {
		out.Schedules = append(out.Schedules, s.Schedule)
	}
	return out, err
}

// Schedule is one of a chat's.
func (m *Manager) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	if _, err := m.chats.reach(ctx, id); err != nil {
		return chat.Schedule{}, err
	}
	s, err := m.store.Schedule(id, name)
	return s.Schedule, err
}

// RemoveSchedule forgets a schedule. A run of it that is under way goes on.
func (m *Manager) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	rec, err := m.chats.reach(ctx, id)
	if err != nil {
		return err
	}
	s, err := m.store.Schedule(id, name)
	if err != nil {
		return err
	}
	return m.store.RemoveSchedule(id, name,
		m.trail.Event(ctx, rec.Record, "unschedule", "done", scheduleDetail(s)))
}

// KeptSchedules gives the schedules of all chats to out, for the clock.
func (m *Manager) KeptSchedules(_ context.Context, out func(chat.StoredSchedule) error) error {
	return m.due.Each(out)
}

// KeptSchedule is one of them.
func (m *Manager) KeptSchedule(_ context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	return m.due.Get(id, name)
}

// BeginDue takes a time that has come and begins its run: see [scheduler.Schedules.Begin]. The result is
// written down whether the front lives or not.
func (m *Manager) BeginDue(ctx context.Context, d chat.DueSchedule) (running bool, err error) {
	return m.due.Begin(ctx, d, func(s state.Schedule) error {
		r, err := m.startScheduled(ctx, d, s)
		if err == nil {
			m.done.Go(func() { m.due.Watch(m.bg, r) })
		}
		return err
	})
}

// startScheduled starts the run as the caller who made the schedule, as every background run: it
// goes on over a restart of chatd.
func (m *Manager) startScheduled(
	ctx context.Context, d chat.DueSchedule, s state.Schedule,
) (*background.Run, error) {
	ctx = chat.WithCaller(audit.WithSchedule(ctx, audit.Schedule{ID: s.ID, Taken: *s.RunningSince}), s.By)
	rec, err := m.chats.reach(ctx, d.Chat)
	if err != nil {
		return nil, &scheduler.NotBegun{Err: err}
	}
	if d.Refused != nil {
		return nil, m.refusedDue(ctx, rec, s, d.Refused)
	}
	timeout, err := rec.profile.RunTimeout(s.Spec.Timeout, chat.DefaultScheduleTimeout)
	if err != nil {
		return nil, err
	}
	run := s.Spec.Run()
	run.Timeout, run.Named = chat.Duration(timeout), d.Named
	return m.runner.start(ctx, d.Chat, run)
}

// refusedDue is the front's reason to refuse the command this time; a denial is audited.
func (m *Manager) refusedDue(ctx context.Context, rec subject, s state.Schedule, r *chat.RefusedDue) error {
	if r.Denial == nil {
		return r
	}
	return errors.Join(r.Denial, m.trail.DeniedRun(ctx, rec.Record, s.Spec.Run().CommandLine(), r.Denial))
}

// AwaitDue returns when the run that BeginDue began has ended and its result is written down, or
// with ctx: the run goes on.
func (m *Manager) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	return m.due.Await(ctx, d)
}

// AddSkipped writes down how many times a schedule skipped while its run went on.
func (m *Manager) AddSkipped(_ context.Context, d chat.DueSchedule) error {
	return m.due.AddSkipped(d)
}

// adoptDue watches the runs that schedules began under an earlier chatd, and ends the times that a
// crash cut off.
func (m *Manager) adoptDue(context.Context) error {
	goOn, err := m.due.Adopt()
	if err != nil {
		return err
	}
	for _, r := range goOn {
		m.done.Go(func() { m.due.Watch(m.bg, r) })
	}
	return nil
}
