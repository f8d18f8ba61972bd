package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestAttackSlots: an owner of many chats whose runs never end leaves some slots to others,
// whatever is due first. As its runs end, its next ones begin, even if the first in its line was
// removed.
func TestAttackSlots(t *testing.T) {
	w := newWorld(t, 4)
	w.owner = func(c chat.ID) string { return map[bool]string{true: "greedy", false: "other"}[c >= id(100)] }
	for n := range 20 {
		w.Add(id(100+n), "a", noon.Add(time.Duration(n+1)*time.Millisecond), false)
	}
	w.pass(time.Second)
	begins := func(ids ...int) {
		t.Helper()
		var names []string
		for range ids {
			select {
			case d := <-w.begun:
				names = append(names, string(d.Chat))
			case <-time.After(time.Minute):
				t.Fatalf("only %v began, want %v", names, ids)
			}
		}
		for _, n := range ids {
			expect.True(t, slices.Contains(names, string(id(n))), "%v began, want %d", names, n)
		}
	}
	ends := func() { w.end <- struct{}{}; <-w.took }
	begins(100, 101, 102)
	w.Add(id(1), "b", noon.Add(2*time.Second), false)
	w.pass(time.Second)
	begins(1)
	w.want()
	for n := range 15 {
		w.Remove(id(104+n), "a")
	}
	// Any of the four current runs may end.
	for range 4 {
		ends()
	}
	begins(103, 119)
	w.want()
	ends()
	ends()
	w.runs.Wait()
	if w.Add(id(300), "c", w.now.Add(time.Second), false); len(w.owned)+len(w.parked)+len(w.ready) > 0 {
		t.Errorf("left behind: %v, %v, %v", w.owned, w.parked, w.ready)
	}
	w.pass(time.Second)
	begins(300)
	ends()
}

// TestGoOn: the run that an earlier process began has its chat's turn and a slot of its owner's;
// what comes due meanwhile is skipped or waits; and it ends as any other.
func TestGoOn(t *testing.T) {
	w := newWorld(t, 2)
	w.owner = func(chat.ID) string { return "bridge" }
	before := noon.Add(-time.Hour)
	w.GoOn(id(1), "a", "bridge", before, noon.Add(time.Second), false)
	w.GoOn(id(2), "once", "bridge", before, time.Time{}, false)
	w.Add(id(1), "b", noon.Add(time.Second), false)
	w.pass(0)
	if d := <-w.begun; d.ID != "a" || !d.UnderWay || !d.At.Equal(before) || !d.Next.Equal(noon.Add(time.Second)) {
		t.Errorf("%+v", d)
	}
	w.want() // one slot is the most of one owner
	w.pass(time.Second)
	w.want()
	w.end <- struct{}{}
	if skipped := <-w.took; skipped != 1 {
		t.Errorf("a skipped %d, want 1", skipped)
	}
	if d := <-w.begun; d.ID != "once" || !d.UnderWay {
		t.Errorf("%+v", d)
	}
	w.end <- struct{}{}
	<-w.took
	if d := <-w.begun; d.ID != "b" || d.UnderWay {
		t.Errorf("%+v", d)
	}
	if skipped := w.ended(); skipped != 0 {
		t.Errorf("b skipped %d", skipped)
	}
	w.pass(every)
	for range 2 {
		d := <-w.begun
		expect.True(t, d.Chat == id(1) && !d.UnderWay, "later: %+v", d)
		w.end <- struct{}{}
		<-w.took
	}
	w.runs.Wait()
	if _, _, ok := w.Look(id(2), "once"); ok || len(w.owned)+len(w.parked)+len(w.ready) > 0 {
		t.Errorf("left behind: %v, %v, %v, %v", ok, w.owned, w.parked, w.ready)
	}
}

// TestGoOnHasTheTurn: of its chat, whatever slots there are.
func TestGoOnHasTheTurn(t *testing.T) {
	w := newWorld(t, 10)
	w.GoOn(id(1), "a", string(id(1)), noon, time.Time{}, false)
	w.Add(id(1), "b", noon.Add(time.Second), false)
	w.Add(id(2), "c", noon.Add(time.Second), false)
	w.pass(0)
	w.want(string(id(1)) + "/a")
	w.pass(time.Second)
	w.mu.Lock()
	expect.True(t, w.running == 2, "%d are under way, want a and c", w.running)
	w.mu.Unlock()
	w.want(string(id(2)) + "/c")
	w.end <- struct{}{}
	w.end <- struct{}{}
	w.want(string(id(1)) + "/b")
}

// TestAttackMissed: however long After takes for a schedule, callers that add, look at or remove
// schedules do not wait for it; and a schedule that is removed or replaced meanwhile is not
// restored.
func TestAttackMissed(t *testing.T) {
	w := newWorld(t, 1)
	after, asked := w.opt.After, 0
	w.opt.After = func(c chat.ID, name string, at, now time.Time) (Next, bool) {
		if asked++; asked > 1 {
			return after(c, name, at, now)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Look(c, name)
			w.Add(id(2), "b", noon.Add(time.Hour), false)
			w.Remove(c, name)
			w.Add(c, name, noon.Add(time.Hour), false)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("others wait for it")
		}
		return after(c, name, at, now)
	}
	w.Add(id(1), "a", noon.Add(time.Second), false)
	w.pass(time.Second)
	w.want()
	if next, _, ok := w.Look(id(1), "a"); !ok || !next.Equal(noon.Add(time.Hour)) || len(w.queue) != 2 {
		t.Errorf("next is %s, %t; %d wait for their time", next, ok, len(w.queue))
	}
}

// TestNextLooksBack: to look back only where clocks have just changed gives the times that
// looking back always gives.
func TestNextLooksBack(t *testing.T) {
	always := func(w When, after time.Time) time.Time {
		for n := w.cron.Next(naive(after.In(w.zone)).Add(-setBack)); !n.IsZero(); n = w.cron.Next(n) {
			if t := firstOf(n, w.zone); t.After(after) {
				return t
			}
		}
		return time.Time{}
	}
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo", "Asia/Kathmandu", "UTC"} {
		for _, expr := range []string{"* 0-23 * * *", "30 2 * * *", "*/20 1,2,3 * * *", "0 0 29 2 *", "59 23 31 12 *", "15 0-3 * * 0"} {
			w := parsed(t, chat.ScheduleSpec{Cron: expr, TimeZone: zone, Command: "true"}, "2026-11-21T12:00:00Z")
			r := rand.New(rand.NewPCG(1, 2))
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var afters []time.Time
			for range 100 {
				afters = append(afters, begin.Add(time.Duration(r.Int64N(int64(3*365*24*time.Hour)))))
			}
			for at := begin; len(afters) < 400; { // around each change
				_, at = at.In(w.zone).ZoneBounds()
				if at.IsZero() || at.Year() > 2028 {
					break
				}
				for m := -5 * 60; m < 5*60; m += 17 {
					afters = append(afters, at.Add(time.Duration(m)*time.Minute))
				}
			}
			for _, after := range afters {
				if got, want := w.nextOnce(after), always(w, after); !got.Equal(want) {
					t.Errorf("%s in %s after %s: %s, want %s", expr, zone, after, got, want)
				}
			}
		}
	}
}
