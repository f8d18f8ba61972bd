package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// NotBegun is the error of a run of which no process has started; its caller may try again.
type NotBegun struct{ Err error }

// Error is the text of Err.
func (e *NotBegun) Error() string { return e.Err.Error() }

// Unwrap is for package errors.
func (e *NotBegun) Unwrap() error { return e.Err }

// Begin takes a time that has come and calls start for its run, which is for the time *RunningSince
// of the schedule that start gets. running is false if no run goes on. The result says why then.
// With d.GoesOn nothing is taken or started; the run of the time taken last goes on. A time that
// was taken before, and one that comes during the schedule's run, is [chat.ErrWrongPhase].
//
// That the time is taken is durable before start: a crash costs a run, and never makes two of one.
// If ctx has ended and start returns [NotBegun], the time is given back.
func (t *Schedules) Begin(
	ctx context.Context, d chat.DueSchedule, start func(state.Schedule) error,
) (running bool, err error) {
	if d.GoesOn {
		return t.goesOn(d)
	}
	s, before, err := t.take(d)
	if err != nil {
		return false, err
	}
	err = start(s)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil && errors.As(err, new(*NotBegun)):
		return false, t.giveBack(d, before)
	}
	last := none(t.whyNot(d, err))
	last.DeniedBy = deniedBy(err)
	return false, t.end(d.Chat, d.ID, *s.RunningSince, last)
}

// goesOn reports whether the run goes on that an earlier front began for d.
func (t *Schedules) goesOn(d chat.DueSchedule) (running bool, err error) {
	s, err := t.Store.Schedule(d.Chat, d.ID)
	switch {
	case err != nil:
		return false, err
	case s.RunningSince == nil:
		return false, fmt.Errorf("cannot wait for schedule %s of chat %s: it does not run: %w",
			d.ID, d.Chat, chat.ErrWrongPhase)
	case t.runTaken(d.Chat, s) == nil: // removed in between
		return false, t.end(d.Chat, d.ID, *s.RunningSince, none(cutOff))
	}
	return true, nil
}

// take records that a time is taken; before is the schedule before that.
func (t *Schedules) take(d chat.DueSchedule) (s, before state.Schedule, err error) {
	if s, err = t.Store.Schedule(d.Chat, d.ID); err != nil {
		return s, s, err
	}
	why := ""
	if r := t.runTaken(d.Chat, s); r != nil && !r.IsOver() {
		why = "its run goes on"
	}
	began := d.Now.Round(0).UTC()
	s, err = t.Store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		before = *s
		if s.Runs > 0 && s.Due.Equal(d.At) { // or by a simultaneous call, as of a front that ended
			why = "it was taken"
		}
		if why != "" {
			return
		}
		s.Runs, s.Missed, s.Skipped = s.Runs+1, s.Missed+d.Missed, s.Skipped+d.Skipped
		s.Taken, s.RunningSince, s.Due, s.Next = began, &began, d.At, nil
		if !d.Next.IsZero() {
			s.Next = &d.Next
		}
	})
	if err == nil && why != "" {
		err = fmt.Errorf("cannot take a time of schedule %s of chat %s: %s: %w",
			d.ID, d.Chat, why, chat.ErrWrongPhase)
	}
	return s, before, err
}

// giveBack returns a time that this chatd took and had not begun when it was told to stop. The next
// chatd treats it as missed while no chatd ran.
func (t *Schedules) giveBack(d chat.DueSchedule, before state.Schedule) error {
	_, err := t.Store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.Runs, s.Missed = before.Runs, before.Missed
		s.Taken, s.RunningSince, s.Due, s.Next = before.Taken, nil, before.Due, &d.At
	})
	return err
}

// AddSkipped adds d.Skipped, the times that came during the schedule's run.
func (t *Schedules) AddSkipped(d chat.DueSchedule) error {
	_, err := t.Store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.Skipped += d.Skipped
	})
	return err
}
