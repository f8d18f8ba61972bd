package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
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

// counts are how many events there are of each chat and verdict.
func counts(events []uplink.Event) map[string]int64 {
	n := map[string]int64{}
	for _, e := range events {
		n[fmt.Sprint(e.Chat, " ", e.Verdict)] += e.Count
	}
	return n
}

// all takes everything, as reports do.
func (t *tally) all(test *testing.T) (all []uplink.Event) {
	test.Helper()
	for {
		events := t.take("").events
		if len(events) == 0 {
			return all
		}
		b, err := json.Marshal(uplink.Call{Verb: uplink.Events, Events: events})
		expect.True(test, err == nil && len(events) <= uplink.MaxEvents && len(b) <= 127<<10,
			"%d events of %d bytes in a report, %v", len(events), len(b), err)
		for _, e := range events {
			expect.NoError(test, e.Validate())
		}
		all = append(all, events...)
	}
}

// TestTallyMerges: what is alike is one, and keeps its first and last time.
func TestTallyMerges(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	tl := newTally(func() time.Time { at = at.Add(time.Second); return at })
	first := at.Add(time.Second)
	addr := netip.MustParseAddrPort("198.18.0.1:443")
	e := Event{Chat: one, Host: "a.example", Addr: addr, Verdict: Allowed, Out: 3, In: 5}
	tl.add(e)
	tl.add(e)
	e.Addr = netip.MustParseAddrPort("198.18.0.9:443") // made up too: the same to the reader
	tl.add(e)
	want := chat.EgressEvent{Time: first, Until: first.Add(2 * time.Second), Count: 3, Sent: 9,
		Received: 15, EgressKind: chat.EgressKind{Verdict: Allowed, Host: "a.example", Port: 443}}
	if got := tl.all(t); len(got) != 1 || got[0].EgressEvent != want || got[0].Chat != one {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i, f := range []func(*Event){
		func(*Event) {},
		func(e *Event) { e.Chat = two },
		func(e *Event) { e.Host = "b.example" },
		func(e *Event) { e.Host = "" },
		func(e *Event) { e.Addr = netip.MustParseAddrPort("198.18.0.9:80") },
		func(e *Event) { e.UDP = true },
		func(e *Event) { e.Verdict = Failed },
		func(e *Event) { e.Why = "because" },
	} {
		other := e
		f(&other)
		tl.add(other)
		n := len(tl.chats[one]) + len(tl.chats[two])
		expect.True(t, n == i+1, "%d kinds after %d: %+v", n, i+1, other)
	}
}

// TestEventKind: a reason of several lines is one, and no text draws on a terminal.
func TestEventKind(t *testing.T) {
	k := Event{Host: "a\x1b[2J", Why: "one\ntwo"}.kind()
	expect.True(t, k.Host == "a [2J" && k.Why == "one; two", "%+v", k)
}

// TestTallyBound: a chat's different events take bounded room, nothing is counted less than it is,
// and the other chats' stay apart.
func TestTallyBound(t *testing.T) {
	tl := newTally(time.Now)
	want := map[string]int64{}
	r := rand.New(rand.NewPCG(1, 2))
	nasty := []string{"\x1b[2J", "\u202e", strings.Repeat("<", 500), "\xff\xfe", "a\nb", "é"}
	for i := range 20000 {
		e := Event{Chat: one, Verdict: []chat.EgressVerdict{Allowed, Refused, Failed}[r.IntN(3)],
			Host: fmt.Sprint(i, nasty[r.IntN(len(nasty))]), Why: nasty[r.IntN(len(nasty))]}
		if i%1000 == 0 {
			e.Chat, e.Host = two, "quiet.example"
			e.Verdict, e.Why = Refused, ""
		}
		want[fmt.Sprint(e.Chat, " ", e.Verdict)]++
		tl.add(e)
		n := len(tl.chats[one])
		must.True(t, n <= maxKinds+3, "%d kinds are kept", n)
	}
	got := tl.all(t)
	if fmt.Sprint(counts(got)) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", counts(got), want)
	}
	for _, e := range got {
		if e.Chat == two && (e.Host != "quiet.example" || e.Count != 20) {
			t.Errorf("%+v", e)
		}
	}
	expect.True(t, len(tl.chats) == 0, "chats without events are kept")
}

// TestReportFits: a report is no longer than a message may be.
func TestReportFits(t *testing.T) {
	tl := newTally(time.Now)
	for i := range maxKinds {
		wide := strings.Repeat("<", chat.MaxEgressText-2)
		tl.add(Event{Chat: one, Host: fmt.Sprint(i, wide), Why: wide, Verdict: Refused})
		tl.add(Event{Chat: two, Host: fmt.Sprint(i, wide), Why: wide, Verdict: Refused})
	}
	got := counts(tl.all(t))
	expect.True(t, len(got) == 2, "%v", got)
}

// TestReports: chatd-root hears of everything once, also of what ended while it was deaf or away,
// and of a chat's last connections before the chat is closed.
func TestReports(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	w.root.mu.Lock()
	w.root.deaf = true
	w.root.mu.Unlock()
	refused := w.dial(n, netip.MustParseAddrPort("192.0.2.1:9"))
	w.event(Refused, "does not list")
	w.s.report(t.Context(), "") // in vain
	w.root.end()
	deaf := w.root.numbers
	w.s.report(t.Context(), "") // in vain too
	w.root = w.newRoot()
	c := w.dial(n, server)
	must.Get(c.Write([]byte("hello")))(t)
	must.Get(c.Read(make([]byte, 5)))(t)
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	w.event(Allowed, "has ended")
	w.root.mu.Lock()
	defer w.root.mu.Unlock()
	got := map[chat.EgressVerdict]chat.EgressEvent{}
	for _, e := range w.root.reports {
		got[e.Verdict] = e.EgressEvent
	}
	if e := got[Refused]; len(w.root.reports) != 2 || e.Count != 1 || e.Address != "192.0.2.1" ||
		e.Port != 9 {
		t.Errorf("%+v", w.root.reports)
	}
	if e := got[Allowed]; e.Count != 1 || e.Sent != 5 || e.Received != 5 ||
		e.To() != server.String() {
		t.Errorf("%+v", w.root.reports)
	}
	if again := w.root.numbers[0]; again == 0 || again != deaf[0] || again == w.root.numbers[1] {
		t.Errorf("a report that was not answered is %v, then %v", deaf, w.root.numbers)
	}
	_ = refused.Close()
}

// TestTallyAtOnce: any number of ends and reports meet.
func TestTallyAtOnce(t *testing.T) {
	tl := newTally(time.Now)
	var all sync.WaitGroup
	var mu sync.Mutex
	var got []uplink.Event
	for i := range 8 {
		all.Go(func() {
			for j := range 500 {
				tl.add(Event{Chat: one, Host: fmt.Sprint(i, j), Verdict: Refused})
				r := tl.take(one)
				mu.Lock()
				got = append(got, r.events...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	got = append(got, tl.all(t)...)
	n := counts(got)[fmt.Sprint(one, " ", Refused)]
	expect.True(t, n == 4000, "%d were told, want 4000", n)
}

var anyResolver = netip.MustParseAddrPort("127.0.0.53:53")

// TestQuestionsAtOnce: programs that ask simultaneously are all answered.
func TestQuestionsAtOnce(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "*.example.org:443")
	var programs []*net.UDPConn
	for i := range 300 {
		w.dns.set(fmt.Sprintf("n%d.example.org", i%60), "192.0.2.7")
		programs = append(programs, listenUDP(t))
	}
	for i, p := range programs {
		n.datagram(udpAddr(p.LocalAddr()), anyResolver,
			question(t, fmt.Sprintf("n%d.example.org", i%60)))
	}
	for i, p := range programs {
		wantAnswer(t, w, n, p, fmt.Sprintf("n%d.example.org", i%60))
	}
}

func wantAnswer(t *testing.T, w *world, n *network, program *net.UDPConn, host string) {
	t.Helper()
	must.Do(t, program.SetReadDeadline(time.Now().Add(guard)))
	b := make([]byte, maxDatagram)
	k, err := program.Read(b)
	must.True(t, err == nil, "%s: %v", host, err)
	wantAddr(t, b[:k], w.named(n, host, 0).Addr())
}

// TestQuestionsFlood: a chat whose questions wait takes half of the places, some 12 KiB each, and
// no time of another chat's.
func TestQuestionsFlood(t *testing.T) {
	w := newWorld(t)
	w.dns.set("api.example.org", "192.0.2.7")
	n, other := w.open(one, "*.example.org:443"), w.open(two, "*.example.org:443")
	ours, all := listenUDP(t), int64(freshQuestions)
	w.s.waiting.left = all
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range freshQuestions {
		n.datagram(udpAddr(ours.LocalAddr()), anyResolver,
			question(t, fmt.Sprintf("%s%d.example.org", silent, i)))
	}
	expect.True(t, n.waiting.held == all/2, "%d questions wait", n.waiting.held)
	runtime.GC()
	runtime.ReadMemStats(&after)
	got := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	t.Logf("a question that waits takes %d bytes", got/n.waiting.held)
	expect.True(t, got/n.waiting.held <= 24<<10, "%d questions take %d KiB", n.waiting.held, got>>10)
	other.datagram(udpAddr(ours.LocalAddr()), anyResolver, question(t, "api.example.org"))
	wantAnswer(t, w, other, ours, "api.example.org")
}

// TestQuestionsLost: what is longer than a question, or over the rate of a chat, is not answered.
func TestQuestionsLost(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "*.example.org:443")
	ours := listenUDP(t)
	q := question(t, silent+".example.org")
	n.datagram(udpAddr(ours.LocalAddr()), anyResolver, append(q, make([]byte, maxQuestion)...))
	n.asks = quota.NewAllowance(0, time.Hour, time.Now)
	n.datagram(udpAddr(ours.LocalAddr()), anyResolver, q)
	expect.True(t, n.waiting.held == 0, "%d questions wait", n.waiting.held)
}

// silent begins names for which the DNS server has no answer.
const silent = "silent"

var errSilent = errors.New("no answer")

func isSilent(name string) bool { return strings.HasPrefix(name, silent) }
