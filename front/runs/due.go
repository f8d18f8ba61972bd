package runs

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/schedule"
	"github.com/chatd/chatd/internal/verbs"
)

// kept reads a schedule and when it comes due; ok is false for one that is gone.
func (c *Chats) kept(id chat.ID, name string) (k chat.StoredSchedule, when schedule.When, ok bool) {
	err := c.retry(c.ctx, func() (err error) {
		k, err = c.root.KeptSchedule(c.ctx, id, name)
		return err
	})
	if err == nil {
		when, err = schedule.Parse(k.Spec, k.CreatedAt)
	}
	if err != nil && !gone(err) {
		c.log.Error("cannot read a schedule that is due", "chat", id, "schedule", name, "error", err)
	}
	return k, when, err == nil
}

// after says when a schedule comes due again.
func (c *Chats) after(id chat.ID, name string, at, now time.Time) (schedule.Next, bool) {
	k, when, ok := c.kept(id, name)
	if !ok {
		return schedule.Next{}, false
	}
	return schedule.Next{At: when.Next(now), Missed: when.Between(at, now), Owner: k.Owner}, true
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
		Chat: due.Chat, ID: due.ID, At: due.At, Now: c.clock.Now(), Next: due.Next, Missed: due.Missed,
		GoesOn: due.UnderWay,
	}
	if !d.GoesOn {
		d.Skipped = skipped()
	}
	running, err := c.takeDue(ctx, d)
	if err == nil && running {
		err = c.root.AwaitDue(ctx, d)
	}
	if ctx.Err() != nil {
		return // the next clock takes the time, or waits for the run, which goes on
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

// takeDue checks the command of a due schedule, and begins its run. If ctx ends before, the next
// clock takes the time.
func (c *Chats) takeDue(ctx context.Context, d chat.DueSchedule) (running bool, err error) {
	err = c.retry(ctx, func() (err error) {
		if !d.GoesOn {
			if d.Named, d.Refused, err = c.checkDue(ctx, d); err != nil {
				return err
			}
		}
		running, err = c.root.BeginDue(ctx, d)
		return err
	})
	return running, err
}

// checkDue checks the command of a due schedule for the caller that created it.
func (c *Chats) checkDue(
	ctx context.Context, d chat.DueSchedule,
) ([]chat.NamedPath, *chat.RefusedDue, error) {
	k, err := c.root.KeptSchedule(ctx, d.Chat, d.ID)
	if err != nil {
		return nil, nil, err
	}
	run, err := c.check(chat.WithCaller(ctx, k.By), d.Chat, k.Spec.Run())
	if err == nil || ctx.Err() != nil || errors.Is(err, verbs.ErrUnreached) {
		return run.Named, nil, err
	}
	refused := &chat.RefusedDue{Reason: "internal: chatd's log has more"}
	if errors.As(err, &refused.Denial); chat.KindOf(err) != nil {
		refused.Reason = chat.ErrorText(err)
	} else {
		c.log.Error("cannot check a scheduled run", "chat", d.Chat, "schedule", d.ID, "error", err)
	}
	return nil, refused, nil
}

// retry repeats a call that did not reach chatd-root, for example because callers took all places:
// a due time must not be lost. chatd-root refuses to take a time twice.
func (c *Chats) retry(ctx context.Context, call func() error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := call()
		if !errors.Is(err, verbs.ErrUnreached) {
			return err
		}
		if chat.Sleep(ctx, pause) != nil {
			return err
		}
	}
}
