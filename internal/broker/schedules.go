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
	// KeptSchedules passes the schedules of all chats to out.
	KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error
	// KeptSchedule returns one of them.
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
	schedules      = chatVerb("list_schedules", Root.Schedules)
	schedule       = chatVerbArg("show_schedule", Root.Schedule)
	removeSchedule = chatOrder("remove_schedule", Root.RemoveSchedule)
	terms          = chatVerb("terms", Root.Terms)
	refuseRun      = chatOrder("refuse_run", Root.RefuseRun)
	putSchedule    = chatVerbArg("put_schedule", Root.PutSchedule)
	keptSchedules  = verbFunc("kept_schedules", func(ctx context.Context, c *call, _ nothing) (nothing, error) {
		out := func(k chat.StoredSchedule) error { return c.frame(k) }
		return nothing{}, c.root.KeptSchedules(ctx, out)
	})
	keptSchedule = chatVerbArg("kept_schedule", Root.KeptSchedule)
	// The call's chat is used because it is checked; the one in the arguments is not.
	beginDue = verbFunc("begin_due", func(ctx context.Context, c *call, d chat.DueSchedule) (bool, error) {
		d.Chat = c.Chat
		return c.root.BeginDue(ctx, d)
	})
	awaitDue = verbFunc("await_due", func(ctx context.Context, c *call, d chat.DueSchedule) (nothing, error) {
		d.Chat = c.Chat
		return nothing{}, c.root.AwaitDue(ctx, d)
	})
	addSkipped = verbFunc("add_skipped", func(ctx context.Context, c *call, d chat.DueSchedule) (nothing, error) {
		d.Chat = c.Chat
		return nothing{}, c.root.AddSkipped(ctx, d)
	})
)

// Schedules lists a chat's schedules.
func (c Calls) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	return schedules.call(ctx, c, id)
}

// Schedule returns one schedule.
func (c Calls) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	return schedule.call(ctx, c, id, name)
}

// RemoveSchedule removes a schedule. Its current run continues.
func (c Calls) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	return removeSchedule.order(ctx, c, id, name)
}

func (c *Client) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	return terms.call(ctx, c.Calls, id)
}

func (c *Client) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	return refuseRun.order(ctx, c.Calls, id, r)
}

func (c *Client) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	return putSchedule.call(ctx, c.Calls, id, n)
}

func (c *Client) KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error {
	_, err := keptSchedules.callWith(ctx, c, "", nothing{}, hooks{on: values(out)})
	return err
}

func (c *Client) KeptSchedule(ctx context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	return keptSchedule.call(ctx, c.Calls, id, name)
}

func (c *Client) BeginDue(ctx context.Context, d chat.DueSchedule) (bool, error) {
	return beginDue.call(ctx, c.Calls, d.Chat, d)
}

func (c *Client) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	return awaitDue.order(ctx, c.Calls, d.Chat, d)
}

func (c *Client) AddSkipped(ctx context.Context, d chat.DueSchedule) error {
	return addSkipped.order(ctx, c.Calls, d.Chat, d)
}
