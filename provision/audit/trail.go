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

// Event is a line of the audit log about a chat.
func (t *Trail) Event(
	ctx context.Context, rec state.Record, action, outcome string, detail map[string]string,
) state.Event {
	if by := ScheduleFrom(ctx); by.ID != "" {
		named := map[string]string{"schedule": by.ID}
		maps.Copy(named, detail)
		detail = named
	}
	return state.Event{Action: action, Outcome: outcome, Chat: rec.ID, UID: rec.UID,
		Caller: chat.CallerFrom(ctx), Detail: detail}
}

// Write writes one event. An act whose intent cannot be audited is not done.
func (t *Trail) Write(
	ctx context.Context, rec state.Record, action, outcome string, detail map[string]string,
) error {
	err := t.store.Audit(t.Event(ctx, rec, action, outcome, detail))
	if errors.Is(err, state.ErrReadOnly) && action == "sleep" {
		// A chat must be stoppable even when the audit log is read-only: the daemon's log gets the
		// event.
		t.log.Warn("not in the audit log", "why", err, "action", action, "outcome", outcome, "chat", rec.ID,
			"by", chat.CallerFrom(ctx).Name, "detail", detail)
		return nil
	}
	return err
}

// WriteArgv is Write for an act with a command line.
func (t *Trail) WriteArgv(
	ctx context.Context, rec state.Record, action, outcome string, argv []string, detail map[string]string,
) error {
	e := t.Event(ctx, rec, action, outcome, detail)
	e.Argv = argv
	return t.store.Audit(e)
}

// Outcome audits the end of an act: done, or failed with err. It returns err too, so that a
// caller cannot lose it.
func (t *Trail) Outcome(
	ctx context.Context, rec state.Record, action string, detail map[string]string, err error,
) error {
	return errors.Join(err, t.End(ctx, rec, action, detail, err))
}

// End is Outcome for those that do not return err, or not as it is.
func (t *Trail) End(
	ctx context.Context, rec state.Record, action string, detail map[string]string, err error,
) error {
	outcome, d := "done", map[string]string{}
	maps.Copy(d, detail)
	if err != nil {
		outcome = "failed"
		d["error"] = err.Error()
		if chat.KindOf(err) == nil && !errors.Is(err, context.Canceled) { // or it is the caller's affair
			t.Remember(chat.Failure{Action: action, Chat: rec.ID, By: chat.CallerFrom(ctx).Name,
				Error: err.Error()})
		}
	}
	return t.Write(ctx, rec, action, outcome, d)
}

// Note is End for what goes on whether it is audited or not: an error is only logged.
func (t *Trail) Note(
	ctx context.Context, rec state.Record, action string, detail map[string]string, err error,
) {
	if err := t.End(ctx, rec, action, detail, err); err != nil {
		t.log.Error("cannot audit an act", "action", action, "chat", rec.ID, "error", err)
	}
}

// Around audits what act does before and after.
func (t *Trail) Around(
	ctx context.Context, rec state.Record, action string, detail map[string]string, act func() error,
) error {
	if err := t.Write(ctx, rec, action, "intent", detail); err != nil {
		return err
	}
	return t.Outcome(ctx, rec, action, detail, act())
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
