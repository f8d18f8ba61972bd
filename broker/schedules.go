package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Schedules keeps a chat's scheduled runs.
type Schedules interface {
	// Schedules lists a chat's schedules, with how the last run of each went.
	Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error)
	// Schedule returns one of them.
	Schedule(ctx context.Context, id chat.ID, schedule string) (chat.Schedule, error)
	// RemoveSchedule removes one. Its current run continues.
	RemoveSchedule(ctx context.Context, id chat.ID, schedule string) error
}

// Checks is what the front needs to check commands and schedules.
type Checks interface {
	// Terms are what the front checks the commands of a chat by.
	Terms(ctx context.Context, id chat.ID) (chat.Terms, error)
	// RefuseRun writes to the audit log that the front refused a run.
	RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error
	// PutSchedule keeps a schedule of the caller's.
	PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error)
	// KeptSchedules passes the schedules of all chats to out; KeptSchedule returns one.
	KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error
	KeptSchedule(ctx context.Context, id chat.ID, schedule string) (chat.StoredSchedule, error)
	// BeginDue starts the run of a due schedule, as the schedule's creator. If running is false,
	// the result is already recorded.
	BeginDue(ctx context.Context, d chat.DueSchedule) (running bool, err error)
	// AwaitDue returns when the result of that run is recorded, or when ctx ends: the run
	// continues.
	AwaitDue(ctx context.Context, d chat.DueSchedule) error
	// AddSkipped adds d.Skipped to the recorded count.
	AddSkipped(ctx context.Context, d chat.DueSchedule) error
}

var (
	schedules      = plain("schedules", Root.Schedules)
	schedule       = of("schedule", Root.Schedule)
	removeSchedule = doing("remove_schedule", Root.RemoveSchedule)
	terms          = plain("terms", Root.Terms)
	refuseRun      = doing("refuse_run", Root.RefuseRun)
	putSchedule    = of("put_schedule", Root.PutSchedule)
	keptSchedules  = by("kept_schedules", func(ctx context.Context, c *call, _ nothing) (nothing, error) {
		out := func(k chat.StoredSchedule) error { return c.frame(k) }
		return nothing{}, c.root.KeptSchedules(ctx, out)
	})
	keptSchedule = of("kept_schedule", Root.KeptSchedule)
	// The call's chat is used because it is checked; the one in the arguments is not.
	beginDue = by("begin_due", func(ctx context.Context, c *call, d chat.DueSchedule) (bool, error) {
		d.Chat = c.Chat
		return c.root.BeginDue(ctx, d)
	})
	awaitDue = by("await_due", func(ctx context.Context, c *call, d chat.DueSchedule) (nothing, error) {
		d.Chat = c.Chat
		return nothing{}, c.root.AwaitDue(ctx, d)
	})
	addSkipped = by("add_skipped", func(ctx context.Context, c *call, d chat.DueSchedule) (nothing, error) {
		d.Chat = c.Chat
		return nothing{}, c.root.AddSkipped(ctx, d)
	})

	scheduleVerbs = verbs{schedules, schedule, removeSchedule, terms, refuseRun, putSchedule,
		keptSchedules, keptSchedule, beginDue, awaitDue, addSkipped}
)

// Schedules is [Schedules].
func (c *Client) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	return schedules.ask(ctx, c, id, nothing{})
}

// Schedule is [Schedules].
func (c *Client) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	return schedule.ask(ctx, c, id, name)
}

// RemoveSchedule is [Schedules].
func (c *Client) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	return removeSchedule.order(ctx, c, id, name)
}

// Terms is [Checks].
func (c *Client) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	return terms.ask(ctx, c, id, nothing{})
}

// RefuseRun is [Checks].
func (c *Client) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	return refuseRun.order(ctx, c, id, r)
}

// PutSchedule is [Checks].
func (c *Client) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	return putSchedule.ask(ctx, c, id, n)
}

// KeptSchedules is [Checks].
func (c *Client) KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error {
	_, err := keptSchedules.askWith(ctx, c, "", nothing{}, hooks{on: values(out)})
	return err
}

// KeptSchedule is [Checks].
func (c *Client) KeptSchedule(ctx context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	return keptSchedule.ask(ctx, c, id, name)
}

// BeginDue is [Checks].
func (c *Client) BeginDue(ctx context.Context, d chat.DueSchedule) (bool, error) {
	return beginDue.ask(ctx, c, d.Chat, d)
}

// AwaitDue is [Checks].
func (c *Client) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	return awaitDue.order(ctx, c, d.Chat, d)
}

// AddSkipped is [Checks].
func (c *Client) AddSkipped(ctx context.Context, d chat.DueSchedule) error {
	return addSkipped.order(ctx, c, d.Chat, d)
}
