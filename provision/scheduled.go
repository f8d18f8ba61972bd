package provision

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/guard"
	"github.com/chatd/chatd/schedule"
	"github.com/chatd/chatd/state"
)

// scheduledSlots is how many scheduled runs there are at once over all chats, and
// scheduledSpread how much later than its time one may begin.
const (
	scheduledSlots  = 16
	scheduledSpread = 10 * time.Second
)

// newRunner is what waits for the schedules of all chats.
func (m *Manager) newRunner() *schedule.Runner {
	if m.opt.Clock.Now == nil {
		m.opt.Clock = schedule.WallClock()
	}
	return schedule.NewRunner(schedule.Options{
		Clock: m.opt.Clock, Slots: cmp.Or(m.opt.Scheduled, scheduledSlots), Spread: scheduledSpread,
		Owner: m.ownerOf, After: m.afterDue, Resume: m.resumeDue, Run: m.runDue,
	})
}

// ownerOf is whose slots the runs of a chat take; those of one that is gone are nobody's.
func (m *Manager) ownerOf(id chat.ID) string {
	rec, err := m.store.Get(id)
	if err != nil {
		return ""
	}
	return rec.Owner
}

// afterDue reads a schedule to say when it comes due again.
func (m *Manager) afterDue(id chat.ID, name string, at, now time.Time) (next time.Time, missed uint64, ok bool) {
	s, err := m.store.Schedule(id, name)
	if err != nil {
		if !errors.Is(err, chat.ErrNotFound) {
			m.log.Error("cannot read a schedule that is due", "chat", id, "schedule", name, "error", err)
		}
		return time.Time{}, 0, false
	}
	when, err := schedule.Parse(s.Spec, s.CreatedAt)
	if err != nil {
		m.find("schedule "+name+" of chat "+string(id), err)
		return time.Time{}, 0, false
	}
	return when.Next(now), when.Between(at, now), true
}

// resumeDue is afterDue for a clock that was set back.
func (m *Manager) resumeDue(id chat.ID, name string, next, now time.Time) time.Time {
	s, err := m.store.Schedule(id, name)
	if err != nil {
		return next // afterDue says why
	}
	when, err := schedule.Parse(s.Spec, s.CreatedAt)
	if err != nil {
		return next
	}
	return when.Resume(next, s.Taken, now)
}

// runDue runs a schedule that is due. That it was taken is durable before it begins: a
// crash costs a run, and never makes two of one.
func (m *Manager) runDue(ctx context.Context, d schedule.Due, skipped func() uint64) {
	began := m.opt.Clock.Now().Round(0).UTC()
	s, err := m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.Runs, s.Missed, s.Skipped = s.Runs+1, s.Missed+d.Missed, s.Skipped+skipped()
		s.Taken, s.RunningSince, s.Next = began, &began, nil
		if !d.Next.IsZero() {
			s.Next = &d.Next
		}
	})
	if err != nil {
		m.notScheduled(d, err)
		return
	}
	var out tail
	res, err := m.runScheduled(ctx, d.Chat, s, &out)
	last := out.result(res)
	last.DueAt, last.StartedAt = d.At, began
	if err != nil {
		last.Exit, last.Error, last.DeniedBy = -1, m.whyNot(ctx, d, err), deniedBy(err)
	}
	_, err = m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.RunningSince, s.Last, s.Skipped = nil, &last, s.Skipped+skipped()
	})
	if err != nil {
		m.notScheduled(d, err)
	}
}

// notScheduled is what could not be written down of a schedule. That it, or its chat, is
// gone by now is no trouble.
func (m *Manager) notScheduled(d schedule.Due, err error) {
	if errors.Is(err, chat.ErrNotFound) || errors.Is(err, chat.ErrWrongPhase) {
		return
	}
	m.log.Error("cannot write down a scheduled run", "chat", d.Chat, "schedule", d.ID, "error", err)
}

// runScheduled runs it as whoever made the schedule, on the way that every run takes.
func (m *Manager) runScheduled(ctx context.Context, id chat.ID, s state.Schedule, out *tail) (chat.RunResult, error) {
	ctx = chat.WithCaller(asSchedule(ctx, s.ID), s.By)
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.RunResult{}, err
	}
	timeout, err := m.profile(rec).RunTimeout(s.Spec.Timeout, chat.DefaultScheduleTimeout)
	if err != nil {
		return chat.RunResult{}, err
	}
	run := s.Spec.Run()
	run.Timeout = chat.Duration(timeout)
	return m.RunTo(ctx, id, run, out.write)
}

// whyNot is err as a bridge may read it later: of what went wrong on the host only that
// it did, as in the API's answers.
func (m *Manager) whyNot(ctx context.Context, d schedule.Due, err error) string {
	if ctx.Err() != nil {
		return "chatd ended while it ran"
	}
	for _, kind := range []error{chat.ErrInvalid, chat.ErrDenied, chat.ErrNotFound, chat.ErrExists, chat.ErrWrongPhase, chat.ErrUnsupported, chat.ErrBusy} {
		if errors.Is(err, kind) {
			const most = 1 << 10
			text := strings.ToValidUTF8(err.Error(), "\ufffd")
			return text[:min(len(text), most)]
		}
	}
	m.log.Error("a scheduled run failed", "chat", d.Chat, "schedule", d.ID, "error", err)
	return "internal: the audit log and chatd's log have more"
}

// deniedBy is the rule that denied a run.
func deniedBy(err error) string {
	var d *guard.Denial
	switch {
	case errors.As(err, &d):
		return d.Rule()
	case errors.Is(err, chat.ErrDenied):
		return "tools_off"
	}
	return ""
}

// tail keeps the end of what a run prints, of both streams in the order in which it comes.
type tail struct {
	mu    sync.Mutex
	kept  []byte
	total int64
}

func (t *tail) write(_ string, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.kept = append(t.kept, p[max(0, len(p)-chat.MaxTail):]...)
	if over := len(t.kept) - chat.MaxTail; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
}

// result is how a run ended, with the tail from the first whole character on.
func (t *tail) result(r chat.RunResult) chat.ScheduleResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.kept
	for i := 0; i < utf8.UTFMax && t.total > int64(len(t.kept)) && len(text) > 0 && !utf8.RuneStart(text[0]); i++ {
		text = text[1:]
	}
	return chat.ScheduleResult{
		WallMS: r.WallMS, Exit: r.Exit, Signal: r.Signal, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		Output: strings.ToValidUTF8(string(text), "\ufffd"), OutputBytes: t.total,
	}
}
