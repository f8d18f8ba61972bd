package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var nine = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// noGroups are cgroups without a process.
type noGroups struct{ background.Groups }

func (noGroups) RemoveRun(chat.ID, string) error { return nil }
func (noGroups) RunUsage(chat.ID, string) (chat.Usage, error) {
	return chat.Usage{}, nil
}

// host is a store with one chat, which has one schedule, and runs without a process.
type host struct {
	*Schedules
	t        *testing.T
	chat     state.Record
	schedule string
	reports  map[string]error
}

func newHost(t *testing.T) *host {
	t.Helper()
	store, err := state.Open(state.Options{Dir: t.TempDir()})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, store.Close()) })
	_, _, err = store.EnsureBlock(chat.DefaultProfile)
	must.Do(t, err)
	by := chat.Caller{Name: "ada", Role: chat.RoleBridge}
	event := state.Event{Action: "create", Outcome: "done", Caller: by}
	rec, _, err := store.Admit(chat.Spec{ExternalID: "a"}, event)
	must.Do(t, err)
	s := NewSchedule(by, chat.NewSchedule{
		Spec: chat.ScheduleSpec{Cron: "0 9 * * *", Command: "true"},
		Made: nine.Add(-time.Hour), Next: nine,
	})
	must.Do(t, store.AddSchedule(rec.ID, s, event))
	h := &host{t: t, chat: rec, schedule: s.ID, reports: map[string]error{}}
	h.Schedules = &Schedules{
		Store: store, Log: slog.New(slog.DiscardHandler),
		Runs:   background.New(background.Options{Dir: t.TempDir(), Groups: noGroups{}}),
		Report: func(about string, err error) { h.reports[about] = err },
	}
	return h
}

// due is the n-th day's time.
func (h *host) due(n int) chat.DueSchedule {
	at := nine.AddDate(0, 0, n)
	return chat.DueSchedule{
		Chat: h.chat.ID, ID: h.schedule,
		At: at, Now: at.Add(time.Second), Next: at.AddDate(0, 0, 1),
	}
}

// run registers a run of the time that s has taken.
func (h *host) run(s state.Schedule, id string) *background.Run {
	h.t.Helper()
	r, err := h.Runs.Admit(background.About{
		Chat: h.chat.ID, Taken: *s.RunningSince,
		Info: chat.Run{ID: id, Schedule: s.ID, Background: true},
	}, func(uint64, uint64) error { return nil })
	must.Do(h.t, err)
	return r
}

func ended(t *testing.T, r *background.Run, exit int) {
	t.Helper()
	_, err := r.Keep(background.End{
		State: chat.RunEnded, Result: chat.RunResult{Exit: exit}, Tail: []byte("out\xff"),
	})
	must.Do(t, err)
}

func (h *host) begin(n int, id string) (r *background.Run) {
	h.t.Helper()
	running, err := h.Begin(h.t.Context(), h.due(n), func(s state.Schedule) error {
		r = h.run(s, id)
		return nil
	})
	must.True(h.t, err == nil && running, "%v, %v", running, err)
	return r
}

func (h *host) get() chat.StoredSchedule {
	h.t.Helper()
	k := must.Get(h.Get(h.chat.ID, h.schedule))(h.t)
	return k
}

func mustNotStart(t *testing.T) func(state.Schedule) error {
	return func(state.Schedule) error { t.Error("it starts"); return nil }
}

// A time is durable before its run starts, begins once, and not beside the run of the time before.
func TestBegin(t *testing.T) {
	h := newHost(t)
	var r *background.Run
	d := h.due(0)
	d.Missed, d.Skipped = 2, 3
	running, err := h.Begin(t.Context(), d, func(s state.Schedule) error {
		k := h.get()
		if k.RunningSince == nil || !k.Due.Equal(nine) || k.Runs != 1 || k.Missed != 2 ||
			k.Skipped != 3 || !k.Next.Equal(nine.AddDate(0, 0, 1)) {
			t.Errorf("when it starts the record is %+v", k)
		}
		r = h.run(s, "one")
		return nil
	})
	must.True(t, err == nil && running && h.get().StillRunning, "%v, %v", running, err)
	for _, again := range []chat.DueSchedule{d, h.due(1)} {
		_, err = h.Begin(t.Context(), again, mustNotStart(t))
		expect.Is(t, err, chat.ErrWrongPhase, "%s during the run", again.At)
	}
	still := d
	still.GoesOn = true
	if running, err = h.Begin(t.Context(), still, mustNotStart(t)); err != nil || !running {
		t.Errorf("for another front: %v, %v", running, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Is(t, h.Await(gone, d), context.Canceled, "awaited with a context that ended")
	ended(t, r, 7)
	must.Do(t, h.Await(t.Context(), d))
	last := h.get().Last
	if last == nil || last.Exit != 7 || last.Output != "out\ufffd" || last.Run != "one" ||
		!last.DueAt.Equal(nine) || h.get().RunningSince != nil {
		t.Errorf("the result is %+v", last)
	}
	must.Do(t, h.AddSkipped(chat.DueSchedule{Chat: d.Chat, ID: d.ID, Skipped: 4}))
	if _, err = h.Begin(t.Context(), d, mustNotStart(t)); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("the same time after its end: %v", err)
	}
	if _, err = h.Begin(t.Context(), still, mustNotStart(t)); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("a run that does not go on: %v", err)
	}
	k := h.get()
	expect.True(t, k.Runs == 1 && k.Skipped == 7, "%d runs, %d skipped", k.Runs, k.Skipped)
}

// Of simultaneous calls that take the same time one starts its run. Of simultaneous ends one writes
// the result.
func TestSimultaneous(t *testing.T) {
	h := newHost(t)
	var starts atomic.Int32
	var begun *background.Run
	var calls sync.WaitGroup
	together := make(chan struct{})
	for range 64 {
		calls.Go(func() {
			<-together
			running, err := h.Begin(t.Context(), h.due(0), func(s state.Schedule) error {
				if starts.Add(1) == 1 {
					begun = h.run(s, "one")
				}
				return nil
			})
			expect.True(t, running == (err == nil) && (err == nil || errors.Is(err, chat.ErrWrongPhase)),
				"%v, %v", running, err)
		})
	}
	close(together)
	calls.Wait()
	if k := h.get(); starts.Load() != 1 || k.Runs != 1 {
		t.Fatalf("%d starts, %d runs", starts.Load(), k.Runs)
	}
	for range 8 {
		calls.Go(func() {
			expect.NoError(t, h.Await(t.Context(), h.due(0)))
		})
	}
	ended(t, begun, 3)
	calls.Wait()
	if all := h.Runs.Of(h.chat.ID); h.get().Last.Exit != 3 || len(all) != 1 {
		t.Errorf("%+v, %d runs are kept", h.get().Last, len(all))
	}
}

// A chatd that is told to stop leaves the time to the next one, if no process has started. Any
// other error of a start is the result.
func TestGiveBack(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	busy := fmt.Errorf("cannot wake: %w", chat.ErrBusy)
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		back bool
	}{
		"told to stop":              {gone, fmt.Errorf("no: %w", &NotBegun{busy}), true},
		"told to stop, and started": {gone, busy, false},
		"not told to stop":          {t.Context(), &NotBegun{busy}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			before, d := h.get(), h.due(0)
			d.Missed = 5
			running, err := h.Begin(c.ctx, d, func(state.Schedule) error { return c.err })
			must.True(t, !running && err == nil, "%v, %v", running, err)
			k := h.get()
			expect.True(t, k.RunningSince == nil && (k.Last == nil) == c.back, "%+v", k.Schedule)
			if c.back {
				if k.Runs != 0 || k.Missed != 0 || !k.Next.Equal(d.At) ||
					!k.Taken.Equal(before.Taken) {
					t.Errorf("given back: %+v", k)
				}
				h.begin(0, "next")
			} else if k.Runs != 1 || k.Last.Exit != -1 || !strings.Contains(k.Last.Error, "busy") {
				t.Errorf("%+v", k.Last)
			}
		})
	}
}

// After a restart, a time without its run was cut off and ends. A time with its run goes on, and
// Watch writes its result, once.
func TestCutOff(t *testing.T) {
	h := newHost(t)
	_, err := h.Begin(t.Context(), h.due(0), func(state.Schedule) error { return nil })
	must.Do(t, err)
	goOn, err := h.Adopt()
	if k := h.get(); err != nil || len(goOn) != 0 || k.RunningSince != nil || k.Last == nil ||
		k.Last.Error != cutOff || k.Last.Exit != -1 {
		t.Fatalf("%v, %v, %+v", goOn, err, k.Last)
	}
	err, ok := h.reports["schedules that were cut off"]
	expect.True(t, err == nil && ok, "the reports are %v", h.reports)
	r := h.begin(1, "one")
	goOn, err = h.Adopt()
	expect.True(t, err == nil && len(goOn) == 1 && goOn[0] == r && h.get().RunningSince != nil,
		"%v, %v", goOn, err)
	h.Runs.Forget(r)
	goes := h.due(1)
	goes.GoesOn = true
	running, err := h.Begin(t.Context(), goes, mustNotStart(t))
	if running || err != nil || h.get().RunningSince != nil || h.get().Last.Error != cutOff {
		t.Errorf("a run that was dropped: %v, %v, %+v", running, err, h.get().Last)
	}
}

// Watch leaves a run that outlives chatd to the next one, and a result of an older time changes
// nothing.
func TestWatch(t *testing.T) {
	h := newHost(t)
	first := h.begin(0, "first")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h.Watch(gone, first)
	if h.get().RunningSince == nil || len(h.reports) != 0 {
		t.Errorf("a run that goes on: %v, %v", h.get().RunningSince, h.reports)
	}
	ended(t, first, 1)
	h.Watch(t.Context(), first)
	err, ok := h.reports["the result of schedule "+h.schedule]
	expect.True(t, err == nil && ok, "the reports are %v", h.reports)
	second := h.begin(1, "second")
	h.Watch(t.Context(), first)
	if k := h.get(); k.RunningSince == nil || k.Last.Run != "first" {
		t.Errorf("the end of the run before, again: %+v", k.Schedule)
	}
	event := state.Event{Action: "unschedule", Outcome: "done", Caller: h.get().By}
	must.Do(t, h.Store.RemoveSchedule(h.chat.ID, h.schedule, event))
	ended(t, second, 0)
	h.Watch(t.Context(), second)
	expect.Equal(t, h.reports["the result of schedule "+h.schedule], nil, "of a schedule that was removed")
}

// The run of the last result is kept, the one before it dropped.
func TestOneRunIsKept(t *testing.T) {
	h := newHost(t)
	for i, want := range []string{"0", "1", "2"} {
		ended(t, h.begin(i, want), 0)
		must.Do(t, h.Await(t.Context(), h.due(i)))
		all := h.Runs.Of(h.chat.ID)
		expect.True(t, len(all) == 1 && all[0].Info.ID == want, "after %s: %d runs are kept", want, len(all))
	}
	err, ok := h.reports["the run 0"]
	expect.True(t, err == nil && ok, "the reports are %v", h.reports)
}

// The clock gets each schedule until it takes no more, and none of a chat that is reaping.
func TestEach(t *testing.T) {
	h := newHost(t)
	by := h.get().By
	event := state.Event{Action: "schedule", Outcome: "done", Caller: by}
	second := NewSchedule(by, chat.NewSchedule{Made: nine, Next: nine})
	must.Do(t, h.Store.AddSchedule(h.chat.ID, second, event))
	h.begin(0, "one")
	seen := map[string]bool{}
	must.Do(t, h.Each(func(k chat.StoredSchedule) error {
		seen[k.ID] = k.StillRunning
		return nil
	}))
	expect.True(t, len(seen) == 2 && seen[h.schedule] && !seen[second.ID], "the schedules are %v", seen)
	full, n := errors.New("no more"), 0
	err := h.Each(func(chat.StoredSchedule) error { n++; return full })
	expect.True(t, n == 1 && errors.Is(err, full), "%d were taken: %v", n, err)
	must.Do(t, h.Store.SetPhase(h.chat.ID, chat.Reaping, event))
	must.Do(t, h.Each(func(k chat.StoredSchedule) error {
		t.Errorf("of a chat that is reaping: %s", k.ID)
		return nil
	}))
	if _, err := h.Get(h.chat.ID, "none"); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("a schedule that is not there: %v", err)
	}
}

// runTaken does not return the kept run of an earlier time.
func TestRunTaken(t *testing.T) {
	const id = chat.ID("0123456789abcdef")
	runs, now := background.New(background.Options{}), time.Now()
	later := now.Add(time.Minute)
	for i, by := range []struct {
		schedule string
		taken    time.Time
	}{{"a", now}, {"a", later}, {"b", later}, {}} {
		info := chat.Run{ID: fmt.Sprint(i), Schedule: by.schedule}
		_, err := runs.Admit(background.About{Chat: id, Taken: by.taken, Info: info}, nil)
		must.Do(t, err)
	}
	h := &Schedules{Runs: runs}
	for _, c := range []struct {
		schedule string
		taken    *time.Time
		want     string
	}{
		{"a", new(later), "1"}, {"b", new(later), "2"}, {"a", new(now.Add(time.Hour)), ""},
		{"b", new(now), ""}, {"a", nil, ""},
	} {
		got := ""
		s := state.Schedule{Schedule: chat.Schedule{ID: c.schedule, RunningSince: c.taken}}
		if r := h.runTaken(id, s); r != nil {
			got = r.Info.ID
		}
		expect.True(t, got == c.want, "%s at %v: %q, want %q", c.schedule, c.taken, got, c.want)
	}
}

// The reader of a result does not learn an error of the host. A denial has its rule, unless the
// rules are terse. The front's reason to refuse a command is shown.
func TestWhyNot(t *testing.T) {
	h := &Schedules{Log: slog.New(slog.DiscardHandler)}
	got := h.whyNot(chat.DueSchedule{}, errors.New("cannot open /var/lib/chatd/secret"))
	expect.True(t, !strings.Contains(got, "/var") && strings.HasPrefix(got, "internal"), "%q", got)
	long := fmt.Errorf("cannot run: %s: %w", strings.Repeat("x", 5000), chat.ErrBusy)
	if got := h.whyNot(chat.DueSchedule{}, long); len(got) != 1<<10 {
		t.Errorf("%d bytes", len(got))
	}
	refused := &chat.RefusedDue{Reason: "no rules"}
	expect.Equal(t, h.whyNot(chat.DueSchedule{}, refused), "no rules", "")
	d := &chat.RunDenial{Rule: "rm-rf"}
	expect.Equal(t, deniedBy(errors.Join(d, nil)), "rm-rf", "")
	d.Terse = true
	expect.Equal(t, deniedBy(d), "", "")
	expect.Equal(t, deniedBy(fmt.Errorf("off: %w", chat.ErrDenied)), "tools_off", "")
}
