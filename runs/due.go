package runs

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/schedule"
)

// kept reads a schedule and when it comes due; ok is false for one that is gone.
func (c *Chats) kept(id chat.ID, name string) (k chat.KeptSchedule, when schedule.When, ok bool) {
	k, err := c.root.KeptSchedule(c.ctx, id, name)
	if err == nil {
		when, err = schedule.Parse(k.Spec, k.CreatedAt)
	}
	if err != nil && !gone(err) {
		c.log.Error("cannot read a schedule that is due", "chat", id, "schedule", name, "error", err)
	}
	return k, when, err == nil
}

// ownerOf is whose slots the runs of a chat take; those of one that is gone are nobody's.
func (c *Chats) ownerOf(id chat.ID, name string) string {
	k, err := c.root.KeptSchedule(c.ctx, id, name)
	if err != nil {
		return "" // after says why
	}
	return k.Owner
}

// after says when a schedule comes due again.
func (c *Chats) after(id chat.ID, name string, at, now time.Time) (next time.Time, missed uint64, ok bool) {
	_, when, ok := c.kept(id, name)
	if !ok {
		return time.Time{}, 0, false
	}
	return when.Next(now), when.Between(at, now), true
}

// resume is after for a clock that was set back.
func (c *Chats) resume(id chat.ID, name string, next, now time.Time) time.Time {
	k, when, ok := c.kept(id, name)
	if !ok {
		return next // after says why
	}
	return when.Resume(next, k.Taken, now)
}

// run runs a schedule that is due, or waits for the run of it that an earlier process began.
func (c *Chats) run(ctx context.Context, due schedule.Due, skipped func() uint64) {
	d := chat.DueSchedule{
		Chat: due.Chat, ID: due.ID, At: due.At, Now: c.clock.Now(), Next: due.Next, Missed: due.Missed, GoesOn: due.UnderWay,
	}
	if !d.GoesOn {
		d.Skipped = skipped()
		if d.Named, d.Refused = c.judgeDue(ctx, d); ctx.Err() != nil {
			return // its time is not taken, and the next clock takes it
		}
	}
	running, err := c.root.BeginDue(ctx, d)
	if err == nil && running {
		err = c.root.AwaitDue(ctx, d)
	}
	if running && ctx.Err() != nil {
		return // it goes on, and the next clock waits for it
	}
	if err == nil {
		if d.Skipped = skipped(); d.Skipped > 0 {
			err = c.root.AddSkipped(context.WithoutCancel(ctx), d)
		}
	}
	if err != nil && !gone(err) {
		c.log.Error("cannot write down a scheduled run", "chat", d.Chat, "schedule", d.ID, "error", err)
	}
}

// judgeDue judges the command of a time that has come, as the caller who made the schedule.
func (c *Chats) judgeDue(ctx context.Context, d chat.DueSchedule) ([]chat.NamedPath, *chat.RefusedDue) {
	k, err := c.root.KeptSchedule(ctx, d.Chat, d.ID)
	var run chat.RunSpec
	if err == nil {
		run, err = c.hold(chat.WithCaller(ctx, k.By), d.Chat, k.Spec.Run())
	}
	if err == nil {
		return run.Named, nil
	}
	refused := &chat.RefusedDue{Said: chat.ErrorText(err)}
	errors.As(err, &refused.Denial)
	return nil, refused
}
