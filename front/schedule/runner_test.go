package schedule

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// world is a runner over schedules that come due every minute, with a clock that stands
// still: tick moves it. Runs begin on begun and end when end is read.
type world struct {
	*Runner
	t     testing.TB
	now   time.Time
	owner func(chat.ID) string
	begun chan Due
	end   chan struct{}
	took  chan uint64 // what each run skipped
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const every = time.Minute

func newWorld(t testing.TB, slots int) *world {
	w := &world{t: t, now: noon, owner: func(c chat.ID) string { return string(c) }, begun: make(chan Due, 10000), end: make(chan struct{}), took: make(chan uint64, 10000)}
	when := must.Get(Parse(chat.ScheduleSpec{Every: chat.Duration(every), Command: "true"}, noon))(t)
	w.Runner = NewRunner(Options{
		Slots: slots,
		After: func(id chat.ID, schedule string, at, now time.Time) (Next, bool) {
			next := Next{Owner: w.owner(id)}
			if schedule != "once" {
				next.At, next.Missed = when.Next(now), when.Between(at, now)
			}
			return next, schedule != "gone"
		},
		Resume: func(_ chat.ID, _ string, next, now time.Time) time.Time { return when.Resume(next, noon, now) },
		Run: func(ctx context.Context, d Due, skipped func() uint64) {
			w.begun <- d
			select {
			case <-w.end:
			case <-ctx.Done():
			}
			w.took <- skipped()
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	w.ctx = ctx // what Serve does; its loop is tried by TestServe
	t.Cleanup(func() { stop(); w.runs.Wait() })
	return w
}

// pass lets time pass and has the runner look.
func (w *world) pass(d time.Duration) time.Duration {
	w.t.Helper()
	w.now = w.now.Add(d)
	wait, _ := w.tick(w.now)
	return wait
}

// want are the runs that have begun since, in order.
func (w *world) want(runs ...string) {
	w.t.Helper()
	for _, want := range runs {
		d := <-w.begun
		if got := fmt.Sprintf("%s/%s", d.Chat, d.ID); got != want {
			w.t.Errorf("%s began, want %s", got, want)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.begun) > 0 {
		w.t.Errorf("%+v began too", <-w.begun)
	}
}

// ended ends the one current run, after which no schedule has a turn.
func (w *world) ended() (skipped uint64) {
	w.t.Helper()
	w.end <- struct{}{}
	skipped = <-w.took
	w.runs.Wait()
	return skipped
}

func id(n int) chat.ID { return chat.ID(fmt.Sprintf("%016x", n)) }

// One after another of each chat, in the order in which they came due; chats do not wait
// for each other.
func TestOneAtATime(t *testing.T) {
	w := newWorld(t, 10)
	w.Add(id(1), "a", noon.Add(time.Second), true)
	w.Add(id(1), "b", noon.Add(2*time.Second), true)
	w.Add(id(2), "c", noon.Add(3*time.Second), true)
	w.pass(0)
	w.want()
	w.pass(3 * time.Second)
	for range 2 {
		d := <-w.begun
		expect.True(t, d.ID != "b", "b did not wait for a")
	}
	w.want()
	w.Remove(id(2), "c") // its run goes on
	w.end <- struct{}{}
	w.end <- struct{}{}
	w.want(string(id(1)) + "/b")
}

// TestSkipped: a time that comes during the schedule's own run is skipped and counted, not queued.
func TestSkipped(t *testing.T) {
	w := newWorld(t, 10)
	w.Add(id(1), "a", noon.Add(every), true)
	w.pass(every)
	w.want(string(id(1)) + "/a")
	w.pass(every)
	w.pass(every)
	w.want()
	if next, skipped, ok := w.Look(id(1), "a"); !ok || skipped != 2 || !next.Equal(noon.Add(4*every)) {
		t.Errorf("next %s, %d skipped, %v", next, skipped, ok)
	}
	n := w.ended()
	expect.True(t, n == 2, "the run was told of %d skipped", n)
	w.pass(every)
	w.want(string(id(1)) + "/a")
}

// TestMissed: missed times are caught up by one run, and the rest are counted.
func TestMissed(t *testing.T) {
	w := newWorld(t, 10)
	w.Add(id(1), "a", noon.Add(every), true)
	w.Add(id(1), "once", noon.Add(every), true)
	w.pass(10*every + time.Second)
	seen := map[string]Due{}
	d := <-w.begun
	seen[d.ID] = d
	w.want()
	w.end <- struct{}{}
	d = <-w.begun
	seen[d.ID] = d
	if a := seen["a"]; a.Missed != 9 || !a.At.Equal(noon.Add(every)) || !a.Next.Equal(noon.Add(11*every)) {
		t.Errorf("a: %+v", a)
	}
	o := seen["once"]
	expect.True(t, o.Next.IsZero() && o.Missed == 0, "once: %+v", o)
	w.pass(every / 2)
	w.want()
}

// A clock that is set back neither repeats nor stops an interval; forward, one run
// catches up.
func TestClockSteps(t *testing.T) {
	w := newWorld(t, 10)
	w.Add(id(1), "a", noon.Add(every), true)
	w.pass(every)
	w.want(string(id(1)) + "/a")
	w.ended()
	wait := w.pass(-24 * 365 * time.Hour)
	expect.True(t, wait <= look, "looks again in %s", wait)
	w.want()
	next, _, _ := w.Look(id(1), "a")
	expect.True(t, next.Sub(w.now) <= every, "waits until %s, and it is %s", next, w.now)
	w.pass(every)
	w.want(string(id(1)) + "/a")
	w.ended()
	w.pass(24 * 365 * time.Hour)
	w.want(string(id(1)) + "/a")
}

// Ten thousand chats of the same minute: as many simultaneously as there are slots, all of them in
// the end, and nothing is kept of those that are removed.
func TestThousandsOfTheSameMinute(t *testing.T) {
	const chats, slots = 10000, 16
	w := newWorld(t, slots)
	w.opt.Spread = 10 * time.Second
	for n := range chats {
		w.Add(id(n), "a", noon.Add(every), true)
	}
	w.pass(every)
	first := w.running + len(w.ready)
	expect.True(t, first != 0 && first <= chats/5, "%d of %d begin in the first second", first, chats)
	w.pass(10 * time.Second)
	goroutines := runtime.NumGoroutine()
	expect.True(t, w.running == slots && goroutines <= slots+50 && len(w.ready) == chats-slots,
		"%d run, %d wait, %d goroutines", w.running, len(w.ready), goroutines)
	seen := map[chat.ID]int{}
	for range chats {
		seen[(<-w.begun).Chat]++
		w.end <- struct{}{}
	}
	expect.True(t, len(seen) == chats, "%d chats had their turn", len(seen))
	for n := range chats {
		<-w.took
		w.RemoveChat(id(n))
	}
	w.runs.Wait()
	expect.True(t, len(w.queue)+len(w.chats)+len(w.ready) == 0,
		"%d in the queue, %d chats, %d ready are left", len(w.queue), len(w.chats), len(w.ready))
}

// TestRemoved: a removed schedule does not begin, even if it waits for its turn; one that After
// reports as gone is forgotten.
func TestRemoved(t *testing.T) {
	w := newWorld(t, 1)
	w.Add(id(1), "a", noon, true)
	w.Add(id(2), "b", noon.Add(time.Second), true)
	w.Add(id(3), "gone", noon.Add(time.Second), true)
	w.Add(id(4), "c", noon.Add(2*time.Second), true)
	w.pass(3 * time.Second)
	w.want(string(id(1)) + "/a")
	w.Remove(id(2), "b")
	w.RemoveChat(id(1))
	w.end <- struct{}{}
	w.want(string(id(4)) + "/c")
	w.ended()
	w.pass(2 * every)
	w.want(string(id(4)) + "/c")
	expect.True(t, w.chats[id(3)] == nil && w.chats[id(2)] == nil && w.chats[id(1)] == nil,
		"what was removed is kept: %v", w.chats)
}

// Serve has one timer, looks again when something is added, and waits for the runs.
func TestServe(t *testing.T) {
	w := newWorld(t, 1)
	var moved atomic.Int64
	timers := make(chan time.Duration)
	fire := make(chan time.Time)
	w.opt.Clock = Clock{Now: func() time.Time { return noon.Add(time.Duration(moved.Load())) }, After: func(d time.Duration) <-chan time.Time { timers <- d; return fire }}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { w.Serve(ctx); close(over) }()
	looks := func(want time.Duration) { // it may look more than once at what was added
		for <-timers != want {
		}
	}
	w.Add(id(1), "a", noon.Add(time.Hour), true)
	looks(look)
	w.Add(id(1), "b", noon.Add(time.Second), true)
	looks(time.Second)
	moved.Store(int64(time.Second))
	for fired := false; !fired; {
		select {
		case fire <- noon:
			fired = true
		case <-timers:
		}
	}
	looks(look)
	w.want(string(id(1)) + "/b")
	stop()
	for done := false; !done; {
		select {
		case <-timers:
		case <-over:
			done = true
		}
	}
	expect.True(t, len(w.took) == 1, "Serve did not wait for the run")
}
