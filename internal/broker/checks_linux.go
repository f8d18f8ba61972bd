package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// The verbs of [verbs.Checks]. Of a due schedule, the call's chat is used because it is checked; the
// one in the arguments is not.
var (
	terms       = verb("terms", verbs.OfChat((*call).Terms))
	refuseRun   = verb("refuse_run", verbs.Order((*call).RefuseRun))
	putSchedule = verb("put_schedule", (*call).PutSchedule)

	keptSchedule  = verb("kept_schedule", (*call).KeptSchedule)
	keptSchedules = verb("kept_schedules",
		func(c *call, ctx context.Context, _ chat.ID, _ none) (none, error) {
			out := func(k chat.StoredSchedule) error { return c.frame(k) }
			return none{}, c.KeptSchedules(ctx, out)
		})
	beginDue = verb("begin_due",
		func(c *call, ctx context.Context, id chat.ID, d chat.DueSchedule) (bool, error) {
			d.Chat = id
			return c.BeginDue(ctx, d)
		})
	awaitDue   = verb("await_due", due((*call).AwaitDue))
	addSkipped = verb("add_skipped", due((*call).AddSkipped))
)

func due(
	do func(*call, context.Context, chat.DueSchedule) error,
) verbs.Method[*call, chat.DueSchedule, none] {
	return func(c *call, ctx context.Context, id chat.ID, d chat.DueSchedule) (none, error) {
		d.Chat = id
		return none{}, do(c, ctx, d)
	}
}

func (c *Client) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	return terms.Of(ctx, c.Calls, id)
}

func (c *Client) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	return refuseRun.Do(ctx, c.Calls, id, r)
}

func (c *Client) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	return putSchedule.Call(ctx, c.Calls, id, n)
}

func (c *Client) KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error {
	_, err := callWith(ctx, c, keptSchedules, "", none{}, hooks{on: values(out)})
	return err
}

func (c *Client) KeptSchedule(ctx context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	return keptSchedule.Call(ctx, c.Calls, id, name)
}

func (c *Client) BeginDue(ctx context.Context, d chat.DueSchedule) (bool, error) {
	return beginDue.Call(ctx, c.Calls, d.Chat, d)
}

func (c *Client) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	return awaitDue.Do(ctx, c.Calls, d.Chat, d)
}

func (c *Client) AddSkipped(ctx context.Context, d chat.DueSchedule) error {
	return addSkipped.Do(ctx, c.Calls, d.Chat, d)
}
