package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/schedule"
	"github.com/chatd/chatd/internal/verbs"
)

// Options are those of [Open]; the zero value is of use.
type Options struct {
	// Clock is the clock of schedules; the zero value is the host's.
	Clock schedule.Clock
	// Slots bounds the simultaneous scheduled runs; 0 is 16.
	Slots int
	// Log receives errors of records that could not be written; nil discards them.
	Log *slog.Logger
}

// slots bounds the simultaneous scheduled runs of all chats, and spread is how much later than its
// time one may begin.
const (
	slots  = 16
	spread = 10 * time.Second
)

// Chats is a [verbs.Root] whose commands are checked and whose schedules have a clock: a
// [verbs.Chats].
type Chats struct {
	under
	*Tools
	*Streams
	guards guards
	clock  schedule.Clock
	log    *slog.Logger
	runner *schedule.Runner

	begun sync.Once

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
}

type root = verbs.Root

// under embeds the root one level deeper, so that the methods of [Streams] win.
type under struct{ root }

var _ verbs.Chats = (*Chats)(nil)

// Open loads the stored schedules, which come due once [Chats.Begin] is called.
func Open(ctx context.Context, below verbs.Root, opt Options) (*Chats, error) {
	c := &Chats{under: under{below}, Tools: NewTools(below), Streams: NewStreams(below), clock: opt.Clock}
	c.log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if c.clock.Now == nil {
		c.clock = schedule.WallClock()
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.runner = schedule.NewRunner(schedule.Options{
		Clock: c.clock, Slots: cmp.Or(opt.Slots, slots), Spread: spread,
		After: c.after, Resume: c.resume, Run: c.run,
	})
	err := below.KeptSchedules(ctx, func(k chat.StoredSchedule) error { c.load(k); return nil })
	if err != nil {
		return nil, fmt.Errorf("cannot load the schedules: %w", err)
	}
	return c, nil
}

// load adds one stored schedule to the clock again.
func (c *Chats) load(k chat.StoredSchedule) {
	when, err := schedule.Parse(k.Spec, k.CreatedAt)
	if err != nil {
		c.log.Error("cannot read a schedule", "chat", k.Chat, "schedule", k.ID, "error", err)
		return
	}
	var next time.Time
	if k.Next != nil {
		next = when.Resume(*k.Next, k.Taken, c.clock.Now())
	}
	if k.StillRunning {
		c.runner.GoOn(k.Chat, k.ID, k.Owner, k.Due, next, k.Spec.Cron != "")
	} else {
		c.runner.Add(k.Chat, k.ID, next, k.Spec.Cron != "")
	}
}

// Begin starts schedules when they come due, until [Chats.Close]. A second call has no effect.
func (c *Chats) Begin() { c.begun.Do(func() { c.done.Go(func() { c.runner.Serve(c.ctx) }) }) }

// Close begins no more runs, and returns when nothing waits for one. Current runs continue.
func (c *Chats) Close() {
	c.stop()
	c.done.Wait()
}

func (c *Chats) AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error) {
	now := c.clock.Now().Round(0).UTC()
	when, err := schedule.Parse(spec, now)
	if err != nil {
		return chat.Schedule{}, err
	}
	next := when.Next(now)
	if next.IsZero() {
		return chat.Schedule{}, chat.Invalid("cannot schedule: at %s: want a time to come, it is %s",
			chat.Quote(spec.At), now.Format(time.RFC3339))
	}
	run, err := c.checkAudited(ctx, id, spec.Run())
	if err != nil {
		return chat.Schedule{}, err
	}
	s, err := c.root.PutSchedule(ctx, id,
		chat.NewSchedule{Spec: spec, Made: now, Next: next, Named: run.Named})
	if err != nil {
		return chat.Schedule{}, err
	}
	c.runner.Add(id, s.ID, next, spec.Cron != "")
	return c.show(id, s), nil
}

func (c *Chats) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	all, err := c.root.Schedules(ctx, id)
	for i, s := range all.Schedules {
		all.Schedules[i] = c.show(id, s)
	}
	return all, err
}

func (c *Chats) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	s, err := c.root.Schedule(ctx, id, name)
	if err != nil {
		return s, err
	}
	return c.show(id, s), nil
}

func (c *Chats) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	err := c.root.RemoveSchedule(ctx, id, name)
	if err == nil {
		c.runner.Remove(id, name)
	}
	return err
}

func (c *Chats) Reap(ctx context.Context, id chat.ID) error {
	err := c.root.Reap(ctx, id)
	if err == nil {
		c.runner.RemoveChat(id)
	}
	return err
}

// show adds what only the clock knows: the record has what came due when a run began or ended.
func (c *Chats) show(id chat.ID, s chat.Schedule) chat.Schedule {
	next, skipped, ok := c.runner.Look(id, s.ID)
	s.Skipped += skipped
	switch {
	case !ok:
	case next.IsZero():
		s.Next = nil
	default:
		s.Next = &next
	}
	return s
}

// gone reports an error that says that the schedule, or its chat, is there no more.
func gone(err error) bool {
	return errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrWrongPhase)
}
