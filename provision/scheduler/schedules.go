package scheduler

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/state"
)

// Schedules are the schedules of all chats in a store. Its methods are safe for concurrent use.
// [Schedules.Adopt] finds their runs.
type Schedules struct {
	Store *state.Store
	Runs  *background.Runs
	// Report records an error of work that has no caller, or by nil its success. about names the
	// work.
	Report func(about string, err error)
	Log    *slog.Logger
}

// NewSchedule is the record of a new schedule, under an id of 12 hexadecimal digits, whose runs
// act for by.
func NewSchedule(by chat.Caller, n chat.NewSchedule) state.Schedule {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	return state.Schedule{By: by, Schedule: chat.Schedule{
		ID: hex.EncodeToString(id[:]), Spec: n.Spec,
		CreatedAt: n.Made, CreatedBy: by.Name, Next: &n.Next,
	}}
}

// Each calls out with the schedules of all chats, until out fails.
func (t *Schedules) Each(out func(chat.StoredSchedule) error) error {
	var all []chat.StoredSchedule // not during the read: out may be slow
	err := t.Store.EachSchedule(func(rec state.Record, s state.Schedule) {
		if rec.Phase != chat.Reaping {
			all = append(all, t.stored(rec, s))
		}
	})
	for _, k := range all {
		if err == nil {
			err = out(k)
		}
	}
	return err
}

// Get returns one schedule of a chat; [chat.ErrNotFound] if there is none.
func (t *Schedules) Get(id chat.ID, name string) (chat.StoredSchedule, error) {
	rec, err := t.Store.Get(id)
	if err != nil {
		return chat.StoredSchedule{}, err
	}
	s, err := t.Store.Schedule(id, name)
	if err != nil {
		return chat.StoredSchedule{}, err
	}
	return t.stored(rec, s), nil
}

func (t *Schedules) stored(rec state.Record, s state.Schedule) chat.StoredSchedule {
	return chat.StoredSchedule{
		Schedule: s.Schedule, Chat: rec.ID, Owner: rec.Owner, By: s.By,
		Taken: s.Taken, Due: s.Due, StillRunning: t.runTaken(rec.ID, s) != nil,
	}
}

// Adopt returns the runs that an earlier chatd began and whose result is not written yet, for
// [Schedules.Watch]. A time that was taken and has no run was cut off by a crash, and ends here.
// It is called once, after [background.Runs.Adopt].
func (t *Schedules) Adopt() (goOn []*background.Run, err error) {
	type cut struct {
		chat chat.ID
		s    state.Schedule
	}
	var cuts []cut
	err = t.Store.EachSchedule(func(rec state.Record, s state.Schedule) {
		switch r := t.runTaken(rec.ID, s); {
		case r != nil:
			goOn = append(goOn, r)
		case s.RunningSince != nil:
			cuts = append(cuts, cut{rec.ID, s})
		}
	})
	var errs []error
	for _, c := range cuts {
		err := t.end(c.chat, c.s.ID, *c.s.RunningSince, none(cutOff))
		if !errors.Is(err, chat.ErrWrongPhase) {
			errs = append(errs, err)
		}
	}
	// chatd starts even on a full disk: the next chatd records the result.
	t.Report("schedules that were cut off", errors.Join(errs...))
	return goOn, err
}

// Watch waits for the end of a schedule's run and records its result. When ctx ends first the
// run goes on, and the next chatd records its end.
func (t *Schedules) Watch(ctx context.Context, r *background.Run) {
	select {
	case <-r.Over():
		t.Report("the result of schedule "+r.Info.Schedule, t.endRun(r))
	case <-ctx.Done():
	}
}

// runTaken is the run of the time that a schedule has taken, or nil.
func (t *Schedules) runTaken(id chat.ID, s state.Schedule) *background.Run {
	if s.RunningSince == nil {
		return nil
	}
	for _, r := range t.Runs.Of(id) {
		if r.Info.Schedule == s.ID && r.Taken.Equal(*s.RunningSince) {
			return r
		}
	}
	return nil
}
