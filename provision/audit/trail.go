package audit

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Trail writes the audit log, and keeps what chatd could not do.
type Trail struct {
	log      *slog.Logger
	store    *state.Store
	mu       sync.Mutex
	findings sync.Map       // a sentence for each subject
	failures []chat.Failure // the latest ones
}

// New returns the trail of a daemon, or of one without a store, which audits nothing.
func New(store *state.Store, log *slog.Logger) *Trail { return &Trail{log: log, store: store} }

// Detail says more of an act, by the keys of the audit log.
type Detail = map[string]string

// Event is a line of the audit log about a chat.
func (t *Trail) Event(ctx context.Context, rec state.Record, action, outcome string, d Detail) state.Event {
	if by := ScheduleFrom(ctx); by.ID != "" {
		named := Detail{"schedule": by.ID}
		maps.Copy(named, d)
		d = named
	}
	return state.Event{Action: action, Outcome: outcome, Chat: rec.ID, UID: rec.UID,
		Caller: chat.CallerFrom(ctx), Detail: d}
}

// Write writes one event. An act whose intent cannot be audited is not done.
func (t *Trail) Write(ctx context.Context, rec state.Record, action, outcome string, d Detail) error {
	err := t.store.Audit(t.Event(ctx, rec, action, outcome, d))
	if errors.Is(err, state.ErrReadOnly) && action == "sleep" {
		// A chat must be stoppable even when the audit log is read-only: the daemon's log gets the
		// event.
		t.log.Warn("not in the audit log", "why", err, "action", action, "outcome", outcome, "chat", rec.ID,
			"by", chat.CallerFrom(ctx).Name, "detail", d)
		return nil
	}
	return err
}

// WriteArgv is Write for an act with a command line.
func (t *Trail) WriteArgv(
	ctx context.Context, rec state.Record, action, outcome string, argv []string, d Detail,
) error {
	e := t.Event(ctx, rec, action, outcome, d)
	e.Argv = argv
	return t.store.Audit(e)
}

// Outcome audits the end of an act: done, or failed with err. It returns err too, so that a
// caller cannot lose it.
func (t *Trail) Outcome(ctx context.Context, rec state.Record, action string, d Detail, err error) error {
	return errors.Join(err, t.End(ctx, rec, action, d, err))
}

// End is Outcome for those that do not return err, or not as it is.
func (t *Trail) End(ctx context.Context, rec state.Record, action string, d Detail, err error) error {
	outcome, all := "done", Detail{}
	maps.Copy(all, d)
	if err != nil {
		outcome = "failed"
		all["error"] = err.Error()
		if chat.KindOf(err) == nil && !errors.Is(err, context.Canceled) { // or it is the caller's affair
			t.Remember(chat.Failure{Action: action, Chat: rec.ID, By: chat.CallerFrom(ctx).Name,
				Error: err.Error()})
		}
	}
	return t.Write(ctx, rec, action, outcome, all)
}

// Note is End for what goes on whether it is audited or not: an error is only logged.
func (t *Trail) Note(ctx context.Context, rec state.Record, action string, d Detail, err error) {
	if err := t.End(ctx, rec, action, d, err); err != nil {
		t.log.Error("cannot audit an act", "action", action, "chat", rec.ID, "error", err)
	}
}

// Around audits what act does before and after.
func (t *Trail) Around(
	ctx context.Context, rec state.Record, action string, d Detail, act func() error,
) error {
	if err := t.Write(ctx, rec, action, "intent", d); err != nil {
		return err
	}
	return t.Outcome(ctx, rec, action, d, act())
}

type scheduleKey struct{}

// Schedule is which time of which schedule a run is for.
type Schedule struct {
	ID    string
	Taken time.Time
}

// WithSchedule is a context whose runs, and lines of the audit log, name the schedule they come from.
func WithSchedule(ctx context.Context, by Schedule) context.Context {
	return context.WithValue(ctx, scheduleKey{}, by)
}

// ScheduleFrom is zero for what no schedule began.
func ScheduleFrom(ctx context.Context) Schedule {
	by, _ := ctx.Value(scheduleKey{}).(Schedule)
	return by
}
