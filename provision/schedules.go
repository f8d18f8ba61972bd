package provision

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// PutSchedule keeps a schedule of the caller's. What it runs is judged now, so that who asks
// hears immediately what is wrong with it, and again each time it runs. When it comes due is
// for package runs to say.
func (m *Manager) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	run := n.Spec.Run()
	run.Named = n.Named
	if err := cmp.Or(n.Spec.Validate(), chat.CheckNamed(n.Named)); err != nil {
		return chat.Schedule{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Schedule{}, err
	}
	if _, err := m.profile(rec).RunTimeout(n.Spec.Timeout, chat.DefaultScheduleTimeout); err != nil {
		return chat.Schedule{}, err
	}
	if err := m.judgeRun(ctx, rec, run); err != nil {
		return chat.Schedule{}, err
	}
	by := chat.CallerFrom(ctx)
	s := state.Schedule{By: by, Schedule: chat.Schedule{ID: newScheduleID(), Spec: n.Spec, CreatedAt: n.Made, CreatedBy: by.Name, Next: &n.Next}}
	event := m.event(ctx, rec, "schedule", "done", scheduleDetail(s))
	event.Argv = run.CommandLine()
	return s.Schedule, m.store.AddSchedule(id, s, event)
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

func newScheduleID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// Schedules are those of a chat, in the order in which they were made.
func (m *Manager) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	out := chat.Schedules{Schedules: []chat.Schedule{}}
	if _, err := m.reach(ctx, id); err != nil {
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
	if _, err := m.reach(ctx, id); err != nil {
		return chat.Schedule{}, err
	}
	s, err := m.store.Schedule(id, name)
	return s.Schedule, err
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
	return m.store.RemoveSchedule(id, name, m.event(ctx, rec, "unschedule", "done", scheduleDetail(s)))
}

// KeptSchedules gives the schedules of all chats to out, for the clock.
func (m *Manager) KeptSchedules(_ context.Context, out func(chat.StoredSchedule) error) error {
	var all []chat.StoredSchedule // not out at once: whoever takes them may be slow
	err := m.store.EachSchedule(func(rec state.Record, s state.Schedule) {
		if rec.Phase != chat.Reaping {
			all = append(all, m.kept(rec, s))
		}
	})
	for _, k := range all {
		if err == nil {
			err = out(k)
		}
	}
	return err
}

// KeptSchedule is one of them.
func (m *Manager) KeptSchedule(_ context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	rec, err := m.store.Get(id)
	if err != nil {
		return chat.StoredSchedule{}, err
	}
	s, err := m.store.Schedule(id, name)
	if err != nil {
		return chat.StoredSchedule{}, err
	}
	return m.kept(rec, s), nil
}

func (m *Manager) kept(rec state.Record, s state.Schedule) chat.StoredSchedule {
	return chat.StoredSchedule{
		Schedule: s.Schedule, Chat: rec.ID, Owner: rec.Owner, By: s.By,
		Taken: s.Taken, Due: s.Due, StillRunning: m.runTaken(rec.ID, s) != nil,
	}
}

// endCutOff ends on paper the scheduled runs that a crash of the host cut off.
func (m *Manager) endCutOff(context.Context) error {
	type cut struct {
		chat  chat.ID
		name  string
		taken time.Time
	}
	var cuts []cut
	err := m.store.EachSchedule(func(rec state.Record, s state.Schedule) {
		if s.RunningSince != nil && m.runTaken(rec.ID, s) == nil {
			cuts = append(cuts, cut{rec.ID, s.ID, *s.RunningSince})
		}
	})
	var errs []error
	for _, c := range cuts {
		err := m.endDue(c.chat, c.name, c.taken, chat.ScheduleResult{Exit: -1, Error: cutOff})
		if !errors.Is(err, chat.ErrWrongPhase) {
			errs = append(errs, err)
		}
	}
	// A full disk is no reason not to start: it is written down by the next.
	m.report("schedules that were cut off", errors.Join(errs...))
	return err
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
