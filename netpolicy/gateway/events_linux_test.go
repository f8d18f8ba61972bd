package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// refusedEvent is one that may be told.
func refusedEvent(id chat.ID, f func(*chat.EgressEvent)) uplink.Event {
	now := time.Now()
	e := chat.EgressEvent{Time: now, Until: now, Count: 1, EgressKind: chat.EgressKind{
		Verdict: chat.EgressRefused, Host: "evil.example", Port: 443, Why: "not listed"}}
	if f != nil {
		f(&e)
	}
	return uplink.Event{Chat: id, EgressEvent: e}
}

// heardEvents is a gateway without a chatd-egress, and what it passes on.
func heardEvents(chats ...chat.ID) (g *Gateway, heard func() []string) {
	var mu sync.Mutex
	var all []string
	g = gatewayOf(Options{Events: func(id chat.ID, events []chat.EgressEvent) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			all = append(all, fmt.Sprint(id, " ", e.Verdict, " ", e.To(), " ", e.Count))
		}
	}})
	for _, id := range chats {
		g.chats[id] = &openChat{Chat: Chat{ID: id}}
	}
	return g, func() []string { mu.Lock(); defer mu.Unlock(); slices.Sort(all); return all }
}

// TestReportsRefused: a chatd-egress that was taken over tells of no chat that is not open, and
// nothing that is not an event.
func TestReportsRefused(t *testing.T) {
	one := func(f func(*chat.EgressEvent)) []uplink.Event {
		return []uplink.Event{refusedEvent(a, nil), refusedEvent(a, f)}
	}
	long := strings.Repeat("x", chat.MaxEgressText+1)
	for name, events := range map[string][]uplink.Event{
		"none":              nil,
		"too many":          slices.Repeat([]uplink.Event{refusedEvent(a, nil)}, 101),
		"no verdict":        one(func(e *chat.EgressEvent) { e.Verdict = "" }),
		"another verdict":   one(func(e *chat.EgressEvent) { e.Verdict = "ok" }),
		"a long host":       one(func(e *chat.EgressEvent) { e.Host = long }),
		"a long reason":     one(func(e *chat.EgressEvent) { e.Why = long }),
		"a host that draws": one(func(e *chat.EgressEvent) { e.Host = "a\x1b[2J" }),
		"lines":             one(func(e *chat.EgressEvent) { e.Why = "a\nb" }),
		"no UTF-8":          one(func(e *chat.EgressEvent) { e.Why = "a\xff" }),
		"turned text":       one(func(e *chat.EgressEvent) { e.Host = "a\u202eb" }),
		"no address":        one(func(e *chat.EgressEvent) { e.Host, e.Address = "", "1.2.3" }),
		"a zone":            one(func(e *chat.EgressEvent) { e.Host, e.Address = "", "fe80::1%"+long }),
		"host and address":  one(func(e *chat.EgressEvent) { e.Address = "192.0.2.1" }),
		"a count of none":   one(func(e *chat.EgressEvent) { e.Count = 0 }),
		"fewer than none":   one(func(e *chat.EgressEvent) { e.Count = -1 }),
		"bytes below 0":     one(func(e *chat.EgressEvent) { e.Sent = -1 }),
		"received below 0":  one(func(e *chat.EgressEvent) { e.Received = -1 }),
		"a count too large": one(func(e *chat.EgressEvent) { e.Count = 1 << 60 }),
		"no time":           one(func(e *chat.EgressEvent) { e.Time = time.Time{} }),
		"backwards":         one(func(e *chat.EgressEvent) { e.Until = e.Time.Add(-1) }),
		"of later":          one(func(e *chat.EgressEvent) { e.Until = e.Time.Add(time.Hour) }),
	} {
		g, heard := heardEvents(a)
		_, answer := g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
			Events: events}, nil)
		if answer.Error == "" || len(heard()) > 0 {
			t.Errorf("%s: %+v, and %v was passed on", name, answer, heard())
		}
	}
}

// TestReportsOfOpenChats: what is of no open chat is passed over, that of a chat which is being
// closed is heard, and a report that is told again is taken once.
func TestReportsOfOpenChats(t *testing.T) {
	g, heard := heardEvents(a)
	g.closing = c
	report := uplink.Call{Verb: uplink.Events, Report: rand.Uint64(), Events: []uplink.Event{
		refusedEvent(a, nil), refusedEvent(b, nil), refusedEvent(c, nil), refusedEvent("", nil)}}
	_, answer := g.answer(t.Context(), report, nil)
	expect.True(t, answer.Error == "", "%v", answer.Error)
	if _, answer := g.answer(t.Context(), report, nil); answer.Error != "" { // told again
		t.Error(answer.Error)
	}
	g.closed()
	report.Report = 0
	if _, answer := g.answer(t.Context(), report, nil); !strings.Contains(answer.Error, "without a number") {
		t.Errorf("a report without a number: %q", answer.Error)
	}
	of := func(id chat.ID) string { return string(id) + " refused evil.example:443 1" }
	if got, want := heard(), []string{of(a), of(c)}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCarriedRefused: a number of connections that no chat may have is refused, and that of a chat
// that is not open is passed over.
func TestCarriedRefused(t *testing.T) {
	for _, n := range []int{-1, maxCarried + 1} {
		g, _ := heardEvents(a)
		_, answer := g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
			Carried: []uplink.Carried{{Chat: a, Count: n}}}, nil)
		expect.True(t, answer.Error != "" && g.chats[a].carried == 0, "%d is taken: %+v", n, answer)
	}
	g, _ := heardEvents(a)
	carried := []uplink.Carried{{Chat: a, Count: 1}}
	_, answer := g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
		Carried: slices.Repeat(carried, uplink.MaxEvents+1)}, nil)
	expect.True(t, answer.Error != "", "too many are taken")
	_, answer = g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
		Carried: []uplink.Carried{{Chat: b, Count: 7}, {Chat: a, Count: 3}}}, nil)
	if answer.Error != "" || g.chats[a].carried != 3 || len(g.chats) != 1 {
		t.Errorf("%+v, %+v", answer, g.chats)
	}
}

// TestCarriedIsLost: the connections that ended with chatd-egress are told as cut, once; those of
// one that is still there are not.
func TestCarriedIsLost(t *testing.T) {
	must.Root(t, "to join network namespaces")
	dir := t.TempDir()
	var mu sync.Mutex
	var lost []chat.EgressEvent
	g := follow(t, gatewayOf(Options{Dir: dir, Program: dir + "/none",
		Events: func(id chat.ID, events []chat.EgressEvent) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, events...)
		}}))
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "open "+string(a)+" +++")
	until(t, func() bool { // the answer is there
		g.telling.Lock()
		defer g.telling.Unlock()
		return g.chats[a].handed
	})
	report := func(n int) {
		t.Helper()
		egress.mu.Lock()
		conn := egress.conn
		egress.mu.Unlock()
		_, _, err := conn.Call(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
			Carried: []uplink.Carried{{Chat: a, Count: n}}})
		must.Do(t, err)
	}
	heard := func(want ...int64) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		var got []int64
		for _, e := range lost {
			expect.True(t, e.Why == lostWhy && e.Verdict == chat.EgressAllowed && e.Validate() == nil,
				"%+v", e)
			got = append(got, e.Count)
		}
		expect.True(t, slices.Equal(got, want), "%v are lost, want %v", got, want)
	}
	report(3)
	egress.mu.Lock()
	egress.has = []chat.ID{a} // the same one, over another connection
	egress.mu.Unlock()
	egress.end()
	egress.heard("hello", "change "+string(a))
	heard()
	report(5)
	egress.mu.Lock()
	egress.has = nil
	egress.mu.Unlock()
	for range 2 { // another one, and one more
		egress.end()
		egress.heard("hello", "open "+string(a)+" +++")
		heard(5)
	}
	report(2)
	must.Do(t, egress.listener.Close())
	egress.end()
	until(t, func() bool { return !answers(g) })
	must.Do(t, g.Close(t.Context(), a))
	heard(5, 2)
}

// TestConnections: what is open is asked of chatd-egress alone, and what it cannot say is not
// known.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	o := g.Connections(t.Context(), a)
	expect.True(t, o.Count == 0 && o.Unknown == "" && o.Connections != nil, "of a chat that sleeps: %+v", o)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	o = g.Connections(t.Context(), a)
	expect.True(t, o.Unknown != "" && o.Connections != nil, "without chatd-egress: %+v", o)
	egress := newCarrier(t, dir)
	until(t, func() bool { return answers(g) })
	egress.heard("hello", "open "+string(a)+" +++")
	set := func(o *chat.EgressOpen) {
		egress.mu.Lock()
		defer egress.mu.Unlock()
		egress.open = o
	}
	for _, bad := range []*chat.EgressOpen{nil, {Count: -1}, {Unknown: "\x1b[2J"}} {
		set(bad)
		if o := g.Connections(t.Context(), a); o.Unknown == "" || o.Count != 0 ||
			strings.Contains(o.Unknown, "\x1b") {
			t.Errorf("%+v of %+v", o, bad)
		}
	}
	good := chat.NewEgressOpen([]chat.EgressConnection{{Since: time.Now(), Host: "a.example",
		Port: 443}})
	set(&good)
	o = g.Connections(t.Context(), a)
	expect.True(t, o.Unknown == "" && o.Count == 1 && o.Connections[0].To() == "a.example:443", "%+v", o)
}

// TestResolve: chatd-egress looks up for open chats, and its error is the answer.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	to := chat.Destination{Host: "a.example", Port: 443}
	expect.Is(t, g.Resolve(t.Context(), a, to), nil, "of a chat that sleeps")
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	expect.Is(t, g.Resolve(t.Context(), a, to), uplink.ErrGone, "without chatd-egress")
	egress := newCarrier(t, dir)
	egress.heard("hello", "open "+string(a)+" +++")
	must.Do(t, g.Resolve(t.Context(), a, to))
	egress.heard("resolve " + string(a))
	egress.mu.Lock()
	egress.refuses = uplink.Resolve
	egress.mu.Unlock()
	err := g.Resolve(t.Context(), a, to)
	expect.True(t, err != nil && strings.Contains(err.Error(), "does not know"), "refused: %v", err)
}

// TestReportsRate: reports without end are refused.
func TestReportsRate(t *testing.T) {
	g, heard := heardEvents(a)
	at := time.Now()
	g.reports = quota.NewAllowance(maxReports, reportEvery, func() time.Time { return at })
	refused := 0
	for range 2 * maxReports {
		_, answer := g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
			Events: []uplink.Event{refusedEvent(a, nil)}}, nil)
		if answer.Error != "" {
			refused++
		}
	}
	if refused != maxReports || len(heard()) != maxReports {
		t.Errorf("%d refused, %d heard", refused, len(heard()))
	}
	at = at.Add(time.Second)
	if _, answer := g.answer(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
		Events: []uplink.Event{refusedEvent(a, nil)}}, nil); answer.Error != "" {
		t.Error("a second later:", answer.Error)
	}
}

// TestLastReport: what chatd-egress reports while it closes a chat is heard.
func TestLastReport(t *testing.T) {
	must.Root(t, "to join network namespaces")
	dir := t.TempDir()
	var mu sync.Mutex
	var heard []chat.ID
	g := follow(t, gatewayOf(Options{Dir: dir, Events: func(id chat.ID, _ []chat.EgressEvent) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, id)
	}}))
	egress := newCarrier(t, dir)
	egress.closing = func(conn *uplink.Conn, id chat.ID) {
		_, _, err := conn.Call(t.Context(), uplink.Call{Verb: uplink.Events, Report: rand.Uint64(),
			Events: []uplink.Event{refusedEvent(id, nil)}})
		expect.NoError(t, err)
	}
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "open "+string(a)+" +++")
	must.Do(t, g.Close(t.Context(), a))
	mu.Lock()
	defer mu.Unlock()
	expect.True(t, slices.Equal(heard, []chat.ID{a}), "%v", heard)
}

// TestFlows: of 1,000 connections a chat gets half, an owner three quarters, and others get some;
// after two minutes all get them again.
func TestFlows(t *testing.T) {
	now := time.Now()
	f := newFlows(1000, func() time.Time { return now })
	most := func(id, owner string) (n int) {
		for ; ; n++ {
			err := f.take(chat.ID(id), owner)
			if err != nil {
				must.True(t, errors.Is(err, chat.ErrBusy), "%v", err)
				return n
			}
		}
	}
	for _, step := range []struct {
		after     time.Duration
		id, owner string
		want      int
	}{
		{0, "a", "bob", 500}, {0, "a", "bob", 0}, {0, "b", "bob", 250}, {0, "c", "bob", 0},
		{0, "d", "eve", 125}, {100 * time.Second, "a", "bob", 0}, {0, "e", "ann", 63},
		{10 * time.Second, "a", "bob", 0}, {20 * time.Second, "a", "bob", 469},
		{time.Hour, "d", "eve", 500},
	} {
		now = now.Add(step.after)
		expect.Equal(t, most(step.id, step.owner), step.want,
			"after %v %s of %s gets", step.after, step.id, step.owner)
	}
	now = now.Add(time.Hour)
	for i := range 3000 {
		now = now.Add(time.Second)
		must.Do(t, f.take(chat.ID(fmt.Sprint(i)), fmt.Sprint(i)))
		n := len(f.of)
		must.True(t, n <= 2*130, "%d counts are kept", n)
	}
}

// waits reports whether a goroutine waits for a mutex in a function.
func waits(function string) bool {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		locks := bytes.Contains(one, []byte("[sync.Mutex.Lock"))
		if locks && bytes.Contains(one, []byte(function)) {
			return true
		}
	}
	return false
}

// TestSlowIntroduction: a chatd-egress that is slow to hear of chats holds up the others, which
// sleep meanwhile and change, for one of them alone.
func TestSlowIntroduction(t *testing.T) {
	dir := t.TempDir()
	g := followed(t, dir)
	var ids []chat.ID
	for i := range 8 {
		ids = append(ids, chat.ID(fmt.Sprintf("%016x", i)))
		must.Do(t, g.Open(t.Context(), Chat{ids[i], "", 70001 + uint32(i), nil}, session(t)))
	}
	var mu sync.Mutex
	var opened []chat.ID
	release := make(chan bool)
	end := sync.OnceFunc(func() { close(release) })
	newCarrierWith(t, dir, func(id chat.ID) {
		mu.Lock()
		opened = append(opened, id)
		mu.Unlock()
		<-release
	})
	t.Cleanup(end) // before the carrier ends
	has := func() []chat.ID { mu.Lock(); defer mu.Unlock(); return slices.Clone(opened) }
	until(t, func() bool { return len(has()) == 1 })
	closed := make(chan error, 1)
	last := ids[7]
	go func() { closed <- g.Close(t.Context(), last) }()
	until(t, func() bool { return waits("gateway.(*Gateway).Close(") })
	for range 7 {
		time.Sleep(2 * time.Millisecond) // from when on a mutex is handed to who waits
		select {
		case release <- true:
		case err := <-closed:
			must.Do(t, err)
			closed <- nil
		}
	}
	must.Do(t, <-closed)
	end()
	until(t, func() bool { return len(has()) >= 7 })
	if got := has(); slices.Contains(got, last) || !slices.Equal(got, ids[:7]) {
		t.Errorf("it was told of %v, want %v", got, ids[:7])
	}
}
