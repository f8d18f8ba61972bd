package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Terms is [Root].
func (c *Client) Terms(ctx context.Context, id chat.ID) (chat.Terms, error) {
	return ask[chat.Terms](ctx, c, "terms", id, nothing{}, hooks{})
}

// RefuseRun is [Root].
func (c *Client) RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error {
	return c.do(ctx, "refuse_run", id, r)
}

// PutSchedule is [Root].
func (c *Client) PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	return ask[chat.Schedule](ctx, c, "put_schedule", id, n, hooks{})
}

// KeptSchedules is [Root].
func (c *Client) KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error {
	_, err := ask[nothing](ctx, c, "kept_schedules", "", nothing{}, hooks{on: values(out)})
	return err
}

// KeptSchedule is [Root].
func (c *Client) KeptSchedule(ctx context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	return ask[chat.StoredSchedule](ctx, c, "kept_schedule", id, name, hooks{})
}

// BeginDue is [Root].
func (c *Client) BeginDue(ctx context.Context, d chat.DueSchedule) (bool, error) {
	return ask[bool](ctx, c, "begin_due", "", d, hooks{})
}

// AwaitDue is [Root].
func (c *Client) AwaitDue(ctx context.Context, d chat.DueSchedule) error {
	return c.do(ctx, "await_due", "", d)
}

// AddSkipped is [Root].
func (c *Client) AddSkipped(ctx context.Context, d chat.DueSchedule) error {
	return c.do(ctx, "add_skipped", "", d)
}
