package scheduler

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/state"
)

// cutOff is the reason in the result of a run that a crash of chatd or of the host cut off.
const cutOff = "chatd or the host ended while it ran"

// none is the result of a time without a run, or with a run whose end is unknown.
func none(reason string) chat.ScheduleResult {
	return chat.ScheduleResult{Exit: -1, Error: reason}
}

// Await waits until the run that Begin began has ended and its result is recorded. If ctx ends
// first, the run goes on.
func (t *Schedules) Await(ctx context.Context, d chat.DueSchedule) error {
	s, err := t.Store.Schedule(d.Chat, d.ID)
	if err != nil {
		return err
	}
	r := t.runTaken(d.Chat, s)
	if r == nil {
		return nil
	}
	select {
	case <-r.Over():
		return t.endRun(r)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endRun records how a run that is over ended. It is idempotent.
func (t *Schedules) endRun(r *background.Run) error {
	err := t.end(r.Chat, r.Info.Schedule, r.Taken, t.resultOf(r))
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrWrongPhase) {
		return nil // the schedule, or its chat, is gone by now
	}
	return err
}

// end records the result of a time, if it is the last one taken, and drops the run of the previous
// result. One run of each schedule is kept.
func (t *Schedules) end(id chat.ID, name string, taken time.Time, last chat.ScheduleResult) error {
	var old string
	_, err := t.Store.ChangeSchedule(id, name, func(s *state.Schedule) {
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
		t.drop(id, old)
	}
	return err
}

// drop forgets a run that is over, with its files.
func (t *Schedules) drop(id chat.ID, run string) {
	for _, r := range t.Runs.Of(id) {
		if r.Info.ID == run && r.IsOver() {
			t.Report("the run "+run, t.Runs.Drop(r))
		}
	}
}

// resultOf returns how a run ended, with the tail of its output.
func (t *Schedules) resultOf(r *background.Run) chat.ScheduleResult {
	e, err := r.Ended()
	if err != nil { // it was dropped, or its end was not recorded
		t.Log.Error("cannot say how a scheduled run ended",
			"chat", r.Chat, "run", r.Info.ID, "error", err)
		last := none(cutOff)
		last.Run = r.Info.ID
		return last
	}
	res := e.Result
	return chat.ScheduleResult{
		Run: r.Info.ID, WallMS: res.WallMS, Exit: res.Exit, Signal: res.Signal,
		TimedOut: res.TimedOut, OOMKilled: res.OOMKilled, EndedBy: res.EndedBy,
		OutputBytes: res.StdoutBytes, Output: strings.ToValidUTF8(string(e.Tail), "\ufffd"),
	}
}

// whyNot is err as a bridge may read it: it names an error of the host only as one, as the API's
// answers do.
func (t *Schedules) whyNot(d chat.DueSchedule, err error) string {
	if errors.As(err, new(*chat.RefusedDue)) || chat.KindOf(err) != nil {
		text := chat.ErrorText(err)
		return strings.ToValidUTF8(text[:min(len(text), maxReason)], "\ufffd")
	}
	t.Log.Error("a scheduled run failed", "chat", d.Chat, "schedule", d.ID, "error", err)
	return "internal: the audit log and chatd's log have more"
}

// maxReason bounds a reason that is kept, in bytes.
const maxReason = 1 << 10

// deniedBy is the rule that denied a run; empty if none did, or if the rules are not shown.
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
