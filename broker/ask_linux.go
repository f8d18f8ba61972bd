package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Create is [Root].
func (c *Client) Create(ctx context.Context, spec chat.Spec) (chat.Chat, bool, error) {
	r, err := ask[created](ctx, c, "create", "", spec, hooks{})
	return r.Chat, r.Made, err
}

// List is [Root].
func (c *Client) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	return ask[chat.Page](ctx, c, "list", "", f, hooks{})
}

// Get is [Root].
func (c *Client) Get(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return ask[chat.Chat](ctx, c, "get", id, nothing{}, hooks{})
}

// Patch is [Root].
func (c *Client) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	return ask[chat.Chat](ctx, c, "patch", id, p, hooks{})
}

// Reap is [Root].
func (c *Client) Reap(ctx context.Context, id chat.ID) error {
	return c.do(ctx, "reap", id, nothing{})
}

// do is a call without a result.
func (c *Client) do(ctx context.Context, verb string, id chat.ID, args any) error {
	_, err := ask[nothing](ctx, c, verb, id, args, hooks{})
	return err
}

// Wake is [Root].
func (c *Client) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return ask[chat.Chat](ctx, c, "wake", id, nothing{}, hooks{})
}

// Sleep is [Root].
func (c *Client) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return ask[chat.Chat](ctx, c, "sleep", id, nothing{}, hooks{})
}

// StartRun is [Root].
func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	return ask[chat.Run](ctx, c, "start_run", id, namedRun{spec, spec.Named}, hooks{})
}

// Runs is [Root].
func (c *Client) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) {
	return ask[chat.Runs](ctx, c, "runs", id, nothing{}, hooks{})
}

// EndRun is [Root].
func (c *Client) EndRun(ctx context.Context, id chat.ID, run string) error {
	return c.do(ctx, "end_run", id, inRun{Run: run})
}

// SignalRun is [Root].
func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	return c.do(ctx, "signal_run", id, inRun{Run: run, Signal: &s})
}

// values reads each frame of a stream.
func values[T any](out func(T) error) func(kind, []byte) error {
	var all []byte
	return func(k kind, p []byte) error {
		if all = append(all, p...); k != frame && len(all) < maxAnswer {
			return nil
		}
		var v T
		if err := decode(all, &v); err != nil {
			return err
		}
		all = all[:0]
		return out(v)
	}
}

// Schedules is [Root].
func (c *Client) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	return ask[chat.Schedules](ctx, c, "schedules", id, nothing{}, hooks{})
}

// Schedule is [Root].
func (c *Client) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	return ask[chat.Schedule](ctx, c, "schedule", id, name, hooks{})
}

// RemoveSchedule is [Root].
func (c *Client) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	return c.do(ctx, "remove_schedule", id, name)
}

// Input is [Root].
func (c *Client) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	return c.do(ctx, "input", id, in)
}

// InputWait is [Root].
func (c *Client) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	t, err := ask[typed](ctx, c, "input_wait", id, in, hooks{})
	t.Typed.Output = t.Output
	return t.Typed, err
}

// Screen is [Root].
func (c *Client) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return c.ScreenWith(ctx, id, chat.ScreenSpec{})
}

// ScreenWith is [Root].
func (c *Client) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	return ask[chat.Screen](ctx, c, "screen", id, spec, hooks{})
}

// Log is [Root].
func (c *Client) Log(ctx context.Context, id chat.ID, from int64) (chat.Log, error) {
	return ask[chat.Log](ctx, c, "log", id, since{from}, hooks{})
}

// FollowLog is [Root].
func (c *Client) FollowLog(ctx context.Context, id chat.ID, from int64, out func(chat.Log) error) error {
	_, err := ask[nothing](ctx, c, "follow_log", id, since{from}, hooks{on: values(out)})
	return err
}

// Explain is [Root].
func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return ask[chat.Explained](ctx, c, "explain", id, namedQuestion{q, q.Named}, hooks{})
}

// Plan is [Root].
func (c *Client) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	return ask[chat.Plan](ctx, c, "plan", id, nothing{}, hooks{})
}

// Host is [Root].
func (c *Client) Host(ctx context.Context) (chat.Host, error) {
	return ask[chat.Host](ctx, c, "host", "", nothing{}, hooks{})
}

// Status is [Root].
func (c *Client) Status(ctx context.Context) (chat.Status, error) {
	return ask[chat.Status](ctx, c, "status", "", nothing{}, hooks{})
}

// NameOf is the name of a user of the host; [Root] has no such method.
func (c *Client) NameOf(uid uint32) (string, error) {
	return ask[string](context.Background(), c, "name_of", "", uid, hooks{})
}
