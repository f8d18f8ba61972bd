package egresslog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const a, b chat.ID = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"

// world is a log with a clock, and what it audited.
type world struct {
	*Log
	at    time.Time
	lines map[chat.ID][]map[string]string
}

func newWorld() *world {
	w := &world{at: time.Date(2026, 11, 25, 10, 0, 30, 0, time.UTC),
		lines: map[chat.ID][]map[string]string{}}
	w.Log = New(Options{Now: func() time.Time { return w.at },
		Audit: func(id chat.ID, d map[string]string) { w.lines[id] = append(w.lines[id], d) }})
	return w
}

// refused are this many refusals of a host, now.
func (w *world) refused(host string, n int64) chat.EgressEvent {
	return chat.EgressEvent{Time: w.at, Until: w.at, Count: n, EgressKind: chat.EgressKind{
		Verdict: chat.EgressRefused, Host: host, Port: 443, Why: "not listed"}}
}

// audited is how many refusals of a chat the lines tell of.
func (w *world) audited(id chat.ID) (n int) {
	for _, d := range w.lines[id] {
		count, _ := strconv.Atoi(d["count"])
		n += count
	}
	return n
}

// TestMinutes: what is alike in one minute is one entry.
func TestMinutes(t *testing.T) {
	w := newWorld()
	for range 3 {
		e := w.refused("evil.example", 2)
		e.Sent, e.Received = 3, 4
		w.Add(a, []chat.EgressEvent{e, w.refused("other.example", 1)})
		w.Add(b, []chat.EgressEvent{w.refused("evil.example", 1)})
		w.at = w.at.Add(20 * time.Second)
	}
	got := w.Of(a)
	must.True(t, len(got.Entries) == 4 && got.Totals == (chat.EgressTotals{Refused: 9}), "%+v", got)
	first, later := got.Entries[0], got.Entries[2]
	if first.Count != 4 || first.Sent != 6 || first.Received != 8 ||
		first.Until.Sub(first.Time) != 20*time.Second || later.Count != 2 {
		t.Errorf("%+v", got.Entries)
	}
	w.Forget(a)
	got = w.Of(a)
	expect.True(t, got.Entries != nil && len(got.Entries) == 0 && got.Totals.Refused == 0, "%+v is left", got)
	got = w.Of(b)
	expect.True(t, got.Totals.Refused == 3, "%+v", got)
}

// TestEntriesAreBounded: a chat has its last entries, and does not take those of others. The totals
// have all.
func TestEntriesAreBounded(t *testing.T) {
	w := newWorld()
	w.Add(b, []chat.EgressEvent{w.refused("quiet.example", 1)})
	for i := range 5000 {
		e := w.refused(fmt.Sprint(i), 1)
		e.Verdict = chat.EgressFailed
		w.Add(a, []chat.EgressEvent{e})
		w.at = w.at.Add(time.Millisecond)
	}
	got := w.Of(a)
	if n := len(got.Entries); n != maxEntries || got.Entries[n-1].Host != "4999" ||
		got.Totals != (chat.EgressTotals{Failed: 5000}) {
		t.Errorf("%d entries, totals %+v", n, got.Totals)
	}
	got = w.Of(b)
	expect.True(t, len(got.Entries) == 1, "%+v", got)
}

// TestEntryGoesOn: of entries, those are kept that were counted last.
func TestEntryGoesOn(t *testing.T) {
	w := newWorld()
	for i := range 3 * maxEntries {
		w.Add(a, []chat.EgressEvent{w.refused("often.example", 1), w.refused(fmt.Sprint(i), 1)})
	}
	l := w.Of(a)
	if len(l.Entries) != maxEntries || l.Entries[maxEntries-2].Host != "often.example" ||
		l.Entries[maxEntries-2].Count != 3*maxEntries {
		t.Errorf("%d entries, %+v", len(l.Entries), l.Entries[maxEntries-2])
	}
}

// TestAllEntriesAreBounded: at the bound of all chats, the chat with most loses entries.
func TestAllEntriesAreBounded(t *testing.T) {
	w := newWorld()
	w.Add(b, []chat.EgressEvent{w.refused("quiet.example", 1)})
	id := func(i int) chat.ID { return chat.ID(fmt.Sprintf("%016x", i)) }
	for i := range maxAll/maxEntries + 3 {
		var all []chat.EgressEvent
		for j := range maxEntries {
			all = append(all, w.refused(fmt.Sprint(j), 1))
		}
		w.Add(id(i), all)
	}
	got := w.Of(b)
	expect.True(t, len(got.Entries) == 1, "a quiet chat has %+v", got)
	n := 0
	for _, k := range w.chats {
		n += len(k.entries)
	}
	if n != maxAll || w.all != n {
		t.Errorf("%d entries are kept, %d are counted", n, w.all)
	}
	for _, id := range slices.Collect(maps.Keys(w.chats)) {
		w.Forget(id)
	}
	if w.all != 0 {
		t.Errorf("%d entries are counted of no chat", w.all)
	}
}

// TestAuditIsBounded: a chat that is refused without end has some lines, a few more each hour, and
// one an hour that says how many more there were. No refusal is left out of the counts.
func TestAuditIsBounded(t *testing.T) {
	w := newWorld()
	const hours = 24
	for i := range hours * 60 {
		for j := range 10 {
			w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint(i, ".", j), 3)})
		}
		if i == 7 {
			w.Add(b, []chat.EgressEvent{w.refused("quiet.example", 1)})
		}
		w.Flush(false)
		w.at = w.at.Add(time.Minute)
	}
	w.Flush(true)
	if n, want := len(w.lines[a]), maxLines+hours*(12+1); n > want || n < want-1 {
		t.Errorf("%d lines, want %d", n, want)
	}
	expect.Equal(t, w.audited(a), hours*60*10*3, "the lines tell of … refusals")
	want := map[string]string{"host": "quiet.example", "port": "443", "count": "1",
		"why": "not listed"}
	got := fmt.Sprint(w.lines[b])
	expect.True(t, got == fmt.Sprint([]map[string]string{want}), "%v, want %v", got, want)
}

// TestAuditAlike: alike refusals are one line, and one each hour with how many more there were. A
// new destination is seen immediately, also an hour after it was seen last.
func TestAuditAlike(t *testing.T) {
	w := newWorld()
	hosts := func() (hosts []string) {
		for _, d := range w.lines[a] {
			hosts = append(hosts, d["host"]+" "+d["count"]+" "+d["again"])
		}
		w.lines[a] = nil
		return hosts
	}
	want := func(want ...string) {
		t.Helper()
		got := hosts()
		expect.True(t, fmt.Sprint(got) == fmt.Sprint(want), "%q, want %q", got, want)
	}
	for i := range 60 { // another reason is no other destination
		e := w.refused("often.example", 2)
		e.Why = fmt.Sprint(i)
		w.Add(a, []chat.EgressEvent{e})
		if i == 0 {
			want("often.example 2 ")
		}
		w.at = w.at.Add(time.Minute)
	}
	w.Flush(false)
	want("often.example 118 true")
	for range 3 {
		w.Add(a, []chat.EgressEvent{w.refused("often.example", 2), w.refused("new.example", 1)})
		w.at = w.at.Add(time.Minute)
	}
	want("new.example 1 ")
	w.at = w.at.Add(time.Hour)
	w.Flush(false)
	want("often.example 6 true", "new.example 2 true")
	w.at = w.at.Add(time.Hour)
	w.Flush(false)
	w.Add(a, []chat.EgressEvent{w.refused("often.example", 1)})
	want("often.example 1 ")
	w.at = w.at.Add(windowLength)
	w.Flush(false)
	want()
	w.at = w.at.Add(windowLength / 2)
	w.Add(a, []chat.EgressEvent{w.refused("often.example", 1)})
	want()
	w.Flush(true)
	want("often.example 1 true")
}

// TestAuditKeepsLines: what is refused again leaves lines for what is new, and the destinations
// that are known are bounded.
func TestAuditKeepsLines(t *testing.T) {
	w := newWorld()
	hour := func(hosts int) {
		for range 2 {
			for i := range hosts {
				w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint("h", i), 1)})
			}
		}
		w.at = w.at.Add(time.Hour)
		w.Flush(false)
	}
	n := 0
	for range 6 {
		hour(60)
		n += 120
		w.lines[b] = nil
		before := len(w.lines[a])
		w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint("new at ", w.at), 1)})
		n++
		if len(w.lines[a]) != before+1 {
			t.Errorf("at %v a new destination has no line", w.at)
		}
		k := len(w.chats[a].audited.known)
		expect.True(t, k <= maxPlaces, "%d destinations are known", k)
	}
	w.Flush(true)
	if w.audited(a) != n {
		t.Errorf("%d of %d are told", w.audited(a), n)
	}
}

// TestAuditClock: a clock that is set back or far ahead stops no lines.
func TestAuditClock(t *testing.T) {
	w := newWorld()
	for i, jump := range []time.Duration{0, -48 * time.Hour, 1000 * time.Hour, -time.Minute} {
		w.at = w.at.Add(jump)
		for j := range 100 {
			w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint(i, ".", j), 1)})
		}
		w.at = w.at.Add(2 * time.Hour)
		before := len(w.lines[a])
		w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint("new", i), 1)})
		if len(w.lines[a]) < before+2 { // the last window's and its own
			t.Errorf("after %v: %v", jump, w.lines[a][before:])
		}
	}
	w.Flush(true)
	n := w.audited(a)
	expect.True(t, n == 404, "%d are told", n)
}

// TestAuditEnds: what is beyond the lines is told when its hour is over, when the chat is reaped,
// and when chatd-root ends, and once.
func TestAuditEnds(t *testing.T) {
	for name, end := range map[string]func(*world){
		"the hour is over": func(w *world) { w.at = w.at.Add(time.Hour); w.Flush(false) },
		"reaped":           func(w *world) { w.Forget(a) },
		"chatd-root ends":  func(w *world) { w.Flush(true) },
	} {
		w := newWorld()
		for i := range 100 {
			w.Add(a, []chat.EgressEvent{w.refused(fmt.Sprint(i), 1)})
		}
		w.Flush(false)
		n := len(w.lines[a])
		expect.True(t, n == maxLines, "%s: %d lines before", name, n)
		end(w)
		w.Flush(true)
		if n := len(w.lines[a]); n != maxLines+1 || w.audited(a) != 100 {
			t.Errorf("%s: %d lines about %d refusals", name, n, w.audited(a))
		}
	}
}

// TestAuditDetail: addresses, datagrams, and questions, which have no port. What was carried or
// failed is not audited.
func TestAuditDetail(t *testing.T) {
	w := newWorld()
	addr := w.refused("", 1)
	addr.Address, addr.UDP = "192.0.2.1", true
	question := w.refused("evil.example", 1)
	question.Port = 0
	allowed, failed := w.refused("a", 1), w.refused("b", 1)
	allowed.Verdict, failed.Verdict = chat.EgressAllowed, chat.EgressFailed
	w.Add(a, []chat.EgressEvent{addr, question, allowed, failed})
	want := []map[string]string{
		{"address": "192.0.2.1", "port": "443", "udp": "true", "count": "1", "why": "not listed"},
		{"host": "evil.example", "count": "1", "why": "not listed"},
	}
	got := fmt.Sprint(w.lines[a])
	expect.True(t, got == fmt.Sprint(want), "%v, want %v", got, want)
}
