package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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

// runDue runs a schedule that is due, or waits for the run of it that an earlier chatd began.
// That it was taken is durable before it begins: a crash costs a run, and never makes two of one.
func (m *Manager) runDue(ctx context.Context, d schedule.Due, skipped func() uint64) {
	s, before, err := m.takeDue(d, skipped)
	if err != nil {
		m.notScheduled(d, err)
		return
	}
	last := chat.ScheduleResult{Exit: -1, DueAt: d.At, StartedAt: *s.RunningSince}
	r := m.runTaken(d.Chat, s)
	if !d.UnderWay {
		r, err = m.startScheduled(ctx, d.Chat, s)
	}
	switch {
	case ctx.Err() != nil && errors.As(err, new(*notBegun)):
		m.giveBack(d, before, skipped)
		return
	case err != nil:
		last.Error, last.DeniedBy = m.whyNot(d, err), deniedBy(err)
	case r == nil: // removed in between
		last.Error = cutOff
	default:
		select {
		case <-r.over:
		case <-ctx.Done():
			return // it goes on, and the next chatd waits for it
		}
		m.addEnd(r, &last)
	}
	var old string
	_, err = m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		if s.Last != nil {
			old = s.Last.Run
		}
		s.RunningSince, s.Last, s.Skipped = nil, &last, s.Skipped+skipped()
	})
	if err != nil {
		m.notScheduled(d, err)
		return
	}
	m.dropLast(d.Chat, old)
}

// takeDue notes that a time is taken; before is the schedule without that.
func (m *Manager) takeDue(d schedule.Due, skipped func() uint64) (s, before state.Schedule, err error) {
	if d.UnderWay {
		s, err := m.store.Schedule(d.Chat, d.ID)
		if err == nil && s.RunningSince == nil {
			err = fmt.Errorf("cannot wait for schedule %s of chat %s: it does not run: %w", d.ID, d.Chat, chat.ErrWrongPhase)
		}
		return s, s, err
	}
	began := m.opt.Clock.Now().Round(0).UTC()
	s, err = m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		before = *s
		s.Runs, s.Missed, s.Skipped = s.Runs+1, s.Missed+d.Missed, s.Skipped+skipped()
		s.Taken, s.RunningSince, s.Due, s.Next = began, &began, d.At, nil
		if !d.Next.IsZero() {
			s.Next = &d.Next
		}
	})
	return s, before, err
}

// giveBack has the next chatd run what this one took and had not begun when it was told to
// stop: for it the time is one that passed while there was no chatd.
func (m *Manager) giveBack(d schedule.Due, before state.Schedule, skipped func() uint64) {
	_, err := m.store.ChangeSchedule(d.Chat, d.ID, func(s *state.Schedule) {
		s.Runs, s.Missed, s.Skipped = before.Runs, before.Missed, s.Skipped+skipped()
		s.Taken, s.RunningSince, s.Due, s.Next = before.Taken, nil, before.Due, &d.At
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

// cutOff is what is said of a run that nobody knows anything of any more.
const cutOff = "chatd or the host ended while it ran"

// startScheduled starts it as whoever made the schedule, on the way that every run of the
// background takes: it goes on over a restart of chatd.
func (m *Manager) startScheduled(ctx context.Context, id chat.ID, s state.Schedule) (*liveRun, error) {
	ctx = chat.WithCaller(asSchedule(ctx, byClock{s.ID, *s.RunningSince}), s.By)
	rec, err := m.reach(ctx, id)
	if err != nil {
		return nil, &notBegun{err}
	}
	timeout, err := m.profile(rec).RunTimeout(s.Spec.Timeout, chat.DefaultScheduleTimeout)
	if err != nil {
		return nil, err
	}
	run := s.Spec.Run()
	run.Timeout = chat.Duration(timeout)
	return m.startRun(ctx, id, run)
}

// runTaken is the run of the time that a schedule has taken, or nil.
func (m *Manager) runTaken(id chat.ID, s state.Schedule) *liveRun {
	for _, r := range m.runsOf(id) {
		if s.RunningSince != nil && r.info.Schedule == s.ID && r.taken.Equal(*s.RunningSince) {
			return r
		}
	}
	return nil
}

// dropLast forgets the run before the last of a schedule: one of each is kept.
func (m *Manager) dropLast(id chat.ID, run string) {
	for _, r := range m.runsOf(id) {
		if r.info.ID == run && r.isOver() {
			m.note("the run "+run, m.dropRun(r))
		}
	}
}

// addEnd says how a run ended, and the end of what it printed.
func (m *Manager) addEnd(r *liveRun, last *chat.ScheduleResult) {
	last.Run = r.info.ID
	res, err := r.resultAlone()
	if err == nil {
		last.WallMS, last.Exit, last.Signal = res.WallMS, res.Exit, res.Signal
		last.TimedOut, last.OOMKilled, last.EndedBy, last.OutputBytes = res.TimedOut, res.OOMKilled, res.EndedBy, res.StdoutBytes
		last.Output, err = r.tail()
	}
	if err != nil { // it was dropped, or nobody saw how it ended
		m.log.Error("cannot say how a scheduled run ended", "chat", r.chat, "run", r.info.ID, "error", err)
		last.Error = cutOff
	}
}

// whyNot is err as a bridge may read it later: of what went wrong on the host only that
// it did, as in the API's answers.
func (m *Manager) whyNot(d schedule.Due, err error) string {
	for _, kind := range []error{chat.ErrInvalid, chat.ErrDenied, chat.ErrNotFound, chat.ErrExists, chat.ErrWrongPhase, chat.ErrUnsupported, chat.ErrBusy} {
		if errors.Is(err, kind) {
			const most = 1 << 10
			text := strings.ToValidUTF8(chat.ErrorText(err), "\ufffd")
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

// tail is the end of what a run printed, in whole characters, at most [chat.MaxTail] bytes.
func (r *liveRun) tail() (string, error) {
	ring, done, err := r.openStream(chat.Stdout)
	if err != nil {
		return "", err
	}
	defer done()
	total, _, err := ring.Counts()
	if err != nil {
		return "", err
	}
	from := max(0, total-chat.MaxTail)
	buf := make([]byte, chat.MaxTail)
	var text []byte
	for pos := from; pos < total; {
		n, at, err := ring.ReadAt(buf[:total-pos], pos)
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		text, pos = append(text, buf[:n]...), at+int64(n)
	}
	for i := 0; i < utf8.UTFMax && from > 0 && len(text) > 0 && !utf8.RuneStart(text[0]); i++ {
		text = text[1:]
	}
	return strings.ToValidUTF8(string(text), "\ufffd"), nil
}
