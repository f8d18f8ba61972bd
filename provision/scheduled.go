package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// BeginDue begins the run of a time that has come; running is false for one that came to
// nothing, which is written down then. That the time was taken is durable before it begins: a
// crash costs a run, and never makes two of one.
func (m *Manager) BeginDue(ctx context.Context, d chat.DueSchedule) (running bool, err error) {
	s, before, err := m.takeDue(d)
	if err != nil {
		return false, err
	}
	r := m.runTaken(d.Chat, s)
	if !d.GoesOn {
		r, err = m.startScheduled(ctx, d, s)
	}
	switch {
	case ctx.Err() != nil && errors.As(err, new(*notBegun)):
		return false, m.giveBack(d, before)
	case err != nil:
		none := chat.ScheduleResult{Exit: -1, Error: m.whyNot(d, err), DeniedBy: deniedBy(err)}
		return false, m.endDue(d.Chat, d.ID, *s.RunningSince, none)
	case r == nil: // removed in between
		none := chat.ScheduleResult{Exit: -1, Error: cutOff}
		return false, m.endDue(d.Chat, d.ID, *s.RunningSince, none)
	}
	if !d.GoesOn {
		m.done.Go(func() { m.watchDue(r) })
	}
	return true, nil
}

// watchDue writes down how the run of a schedule ended, whether the front lives or not. What
// ends after the Manager is for the next one.
func (m *Manager) watchDue(r *liveRun) {
	select {
	case <-r.over:
		m.report("the result of schedule "+r.info.Schedule, m.endRunOfDue(r))
	case <-m.bg.Done():
	}
}

// watchDues is watchDue for the runs of an earlier chatd.
func (m *Manager) watchDues() {
	err := m.store.EachSchedule(func(rec state.Record, s state.Schedule) {
		if r := m.runTaken(rec.ID, s); r != nil {
			m.done.Go(func() { m.watchDue(r) })
		}
	})
	m.report("runs of schedules that go on", err)
}

// AwaitDue returns when the run that BeginDue began has ended and its result is written down, or
// with ctx: the run goes on.
func (m *Manager) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	s, err := m.store.Schedule(d.Chat, d.ID)
	if err != nil {
		return err
	}
	r := m.runTaken(d.Chat, s)
	if r == nil {
		return nil
	}
	select {
	case <-r.over:
		return m.endRunOfDue(r)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AddSkipped writes down how many times a schedule skipped while its run went on.
func (m *Manager) AddSkipped(_ context.Context, d chat.DueSchedule) error {
	_, err := m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) { s.Skipped += d.Skipped })
	return err
}

// endRunOfDue writes down how a run that is over ended. To do it again changes nothing.
func (m *Manager) endRunOfDue(r *liveRun) error {
	var last chat.ScheduleResult
	last.Exit = -1
	m.addEnd(r, &last)
	err := m.endDue(r.chat, r.info.Schedule, r.taken, last)
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrWrongPhase) {
		return nil // the schedule, or its chat, is gone by now
	}
	return err
}

// endDue writes down the result of a time, if it is the one that was taken last, and forgets the
// run of the one before.
func (m *Manager) endDue(id chat.ID, name string, taken time.Time, last chat.ScheduleResult) error {
	var old string
	_, err := m.store.ChangeSchedule(id, name, func(s *state.Schedule) {
		if s.RunningSince == nil || !s.RunningSince.Equal(taken) {
			return
		}
		if s.Last != nil {
			old = s.Last.Run
		}
		last.DueAt, last.StartedAt = s.Due, *s.RunningSince
		s.RunningSince, s.Last = nil, &last
	})
	if err == nil {
		m.dropLast(id, old)
	}
	return err
}

// takeDue notes that a time is taken; before is the schedule without that.
func (m *Manager) takeDue(d chat.DueSchedule) (s, before state.Schedule, err error) {
	if d.GoesOn {
		s, err := m.store.Schedule(d.Chat, d.ID)
		if err == nil && s.RunningSince == nil {
			err = fmt.Errorf("cannot wait for schedule %s of chat %s: it does not run: %w", d.ID, d.Chat, chat.ErrWrongPhase)
		}
		return s, s, err
	}
	if s, err = m.store.Schedule(d.Chat, d.ID); err != nil {
		return s, s, err
	}
	if s.Runs > 0 && s.Due.Equal(d.At) {
		return s, s, fmt.Errorf("cannot take a time of schedule %s of chat %s: it was taken: %w",
			d.ID, d.Chat, chat.ErrWrongPhase)
	}
	if r := m.runTaken(d.Chat, s); r != nil && !r.isOver() {
		return s, s, fmt.Errorf("cannot take a time of schedule %s of chat %s: its run goes on: %w", d.ID, d.Chat, chat.ErrWrongPhase)
	}
	began := d.Now.Round(0).UTC()
	s, err = m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		before = *s
		s.Runs, s.Missed, s.Skipped = s.Runs+1, s.Missed+d.Missed, s.Skipped+d.Skipped
		s.Taken, s.RunningSince, s.Due, s.Next = began, &began, d.At, nil
		if !d.Next.IsZero() {
			s.Next = &d.Next
		}
	})
	return s, before, err
}

// giveBack has the next chatd run what this one took and had not begun when it was told to
// stop: for it the time is one that passed while there was no chatd.
func (m *Manager) giveBack(d chat.DueSchedule, before state.Schedule) error {
	_, err := m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.Runs, s.Missed = before.Runs, before.Missed
		s.Taken, s.RunningSince, s.Due, s.Next = before.Taken, nil, before.Due, &d.At
	})
	return err
}

// cutOff is what is said of a run that nobody knows anything of any more.
const cutOff = "chatd or the host ended while it ran"

// startScheduled starts it as whoever made the schedule, on the way that every run of the
// background takes: it goes on over a restart of chatd.
func (m *Manager) startScheduled(ctx context.Context, d chat.DueSchedule, s state.Schedule) (*liveRun, error) {
	ctx = chat.WithCaller(asSchedule(ctx, byClock{s.ID, *s.RunningSince}), s.By)
	rec, err := m.reach(ctx, d.Chat)
	if err != nil {
		return nil, &notBegun{err}
	}
	if d.Refused != nil {
		return nil, m.refusedDue(ctx, rec, s, d.Refused)
	}
	timeout, err := m.profile(rec).RunTimeout(s.Spec.Timeout, chat.DefaultScheduleTimeout)
	if err != nil {
		return nil, err
	}
	run := s.Spec.Run()
	run.Timeout, run.Named = chat.Duration(timeout), d.Named
	return m.startRun(ctx, d.Chat, run)
}

// refusedDue is why the front does not let a command run this time; a denial is audited.
func (m *Manager) refusedDue(ctx context.Context, rec state.Record, s state.Schedule, r *chat.RefusedDue) error {
	if r.Denial == nil {
		return &notJudged{r.Reason}
	}
	return errors.Join(r.Denial, m.auditDenied(ctx, rec, s.Spec.Run().CommandLine(), r.Denial))
}

// notJudged is what the front says of a command that it cannot judge.
type notJudged struct{ said string }

func (e *notJudged) Error() string { return e.said }

// runTaken is the run of the time that a schedule has taken, or nil.
func (m *Manager) runTaken(id chat.ID, s state.Schedule) *liveRun {
	for _, r := range m.runsOf(id) {
		if s.RunningSince != nil && r.info.Schedule == s.ID && r.taken.Equal(*s.RunningSince) {
			return r
		}
	}
	return nil
}

// dropLast forgets the run before the last of a schedule: one of each is kept.
func (m *Manager) dropLast(id chat.ID, run string) {
	for _, r := range m.runsOf(id) {
		if r.info.ID == run && r.isOver() {
			m.report("the run "+run, m.dropRun(r))
		}
	}
}

// addEnd says how a run ended, and the end of what it printed.
func (m *Manager) addEnd(r *liveRun, last *chat.ScheduleResult) {
	last.Run = r.info.ID
	e, err := r.endAlone()
	if res := e.Result; err == nil {
		last.WallMS, last.Exit, last.Signal = res.WallMS, res.Exit, res.Signal
		last.TimedOut, last.OOMKilled, last.EndedBy = res.TimedOut, res.OOMKilled, res.EndedBy
		last.OutputBytes = res.StdoutBytes
		last.Output = strings.ToValidUTF8(string(e.Tail), "\ufffd")
	}
	if err != nil { // it was dropped, or nobody saw how it ended
		m.log.Error("cannot say how a scheduled run ended", "chat", r.chat, "run", r.info.ID, "error", err)
		last.Error = cutOff
	}
}

// whyNot is err as a bridge may read it later: of what went wrong on the host only that
// it did, as in the API's answers.
func (m *Manager) whyNot(d chat.DueSchedule, err error) string {
	if errors.As(err, new(*notJudged)) || chat.KindOf(err) != nil {
		return cutText(chat.ErrorText(err))
	}
	m.log.Error("a scheduled run failed", "chat", d.Chat, "schedule", d.ID, "error", err)
	return "internal: the audit log and chatd's log have more"
}

// cutText bounds a reason that is kept.
func cutText(text string) string {
	const most = 1 << 10
	text = strings.ToValidUTF8(text, "\ufffd")
	return text[:min(len(text), most)]
}

// deniedBy is the rule that denied a run.
func deniedBy(err error) string {
	var d *chat.RunDenial
	switch {
	case errors.As(err, &d):
		return d.VisibleRule()
	case errors.Is(err, chat.ErrDenied):
		return "tools_off"
	}
	return ""
}
