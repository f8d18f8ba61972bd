package egress

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	reportEvery   = time.Second
	reportTimeout = time.Second
	// maxReports is how many calls a report makes; chatd-root takes 50 a second. The next report
	// has the rest.
	maxReports = 40
	// maxReport bounds the bytes of a call: uplink takes 128 KiB.
	maxReport = 96 << 10
	// maxKinds is how many kinds of events of a chat are told apart between two reports.
	maxKinds = 64
)

// tally counts the events of chats until chatd-root has heard of them. No event waits for anything
// but other events: a connection's end is never late for it.
type tally struct {
	now func() time.Time

	mu      sync.Mutex
	chats   map[chat.ID]map[chat.EgressKind]chat.EgressEvent
	carried map[chat.ID]int  // how many connections and flows are carried now
	unheard map[chat.ID]bool // chats of which chatd-root has not heard how many
}

// report is what one call tells.
type report struct {
	number  uint64 // by which chatd-root knows it when it is told again
	events  []uplink.Event
	carried []uplink.Carried
}

func (r report) empty() bool { return len(r.events)+len(r.carried) == 0 }

func newTally(now func() time.Time) *tally {
	return &tally{now: now, chats: map[chat.ID]map[chat.EgressKind]chat.EgressEvent{},
		carried: map[chat.ID]int{}, unheard: map[chat.ID]bool{}}
}

// kind is the kind of an event. The address of a name is made up, and tells nobody anything.
func (e Event) kind() chat.EgressKind {
	k := chat.EgressKind{Verdict: e.Verdict, Host: chat.EgressText(e.Host), UDP: e.UDP,
		Why: chat.EgressText(strings.ReplaceAll(e.Why, "\n", "; "))}
	if e.Addr.IsValid() {
		k.Port = e.Addr.Port()
		if k.Host == "" {
			k.Address = e.Addr.Addr().WithZone("").String()
		}
	}
	return k
}

// add counts an event.
func (t *tally) add(of Event) {
	now := t.now().UTC().Round(0)
	e := chat.EgressEvent{Time: now, Until: now, EgressKind: of.kind(), Count: 1, Sent: of.Out,
		Received: of.In}
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := t.chats[of.Chat]
	if kinds == nil {
		kinds = map[chat.EgressKind]chat.EgressEvent{}
		t.chats[of.Chat] = kinds
	}
	if _, known := kinds[e.EgressKind]; !known && len(kinds) >= maxKinds {
		why := fmt.Sprintf("others: over %d kinds in a second", maxKinds)
		e.EgressKind = chat.EgressKind{Verdict: e.Verdict, Why: why}
	}
	if known, ok := kinds[e.EgressKind]; ok {
		e.Add(known)
	}
	kinds[e.EgressKind] = e
}

// take takes what fits into a call: of one chat, or of any if id is empty. Maps begin anywhere, so
// no chat is always last.
func (t *tally) take(id chat.ID) report {
	r := report{number: max(rand.Uint64(), 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.unheard {
		if len(r.carried) == uplink.MaxEvents {
			break
		}
		if id == "" || id == other {
			r.carried = append(r.carried, uplink.Carried{Chat: other, Count: t.carried[other]})
			delete(t.unheard, other)
		}
	}
	r.events = t.takeEvents(id)
	return r
}

// takeEvents is take for events. t.mu is held.
func (t *tally) takeEvents(id chat.ID) (events []uplink.Event) {
	ids := []chat.ID{id}
	if id == "" {
		ids = slices.Collect(maps.Keys(t.chats))
	}
	size := 0
	for _, id := range ids {
		for k, e := range t.chats[id] {
			// JSON writes some characters as six.
			if size += 512 + 6*(len(k.Host)+len(k.Why)); size > maxReport ||
				len(events) == uplink.MaxEvents {
				return events
			}
			events = append(events, uplink.Event{Chat: id, EgressEvent: e})
			delete(t.chats[id], k)
		}
		delete(t.chats, id)
	}
	return events
}

// unhear has chatd-root told again how many connections these chats have, by then.
func (t *tally) unhear(carried []uplink.Carried) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range carried {
		t.unheard[c.Chat] = true
	}
}

// report tells chatd-root of the events of one chat, or of all if id is empty. The last ones are lost
// with this process.
func (s *server) report(ctx context.Context, id chat.ID) {
	for range maxReports {
		if more := s.tellNext(ctx, id); !more {
			return
		}
	}
}

// tellNext makes one report, unless there is nothing to tell, and returns whether it was heard. One
// whose events were not answered is made again before any other: chatd-root may have heard it.
func (s *server) tellNext(ctx context.Context, id chat.ID) bool {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	if s.unanswered.empty() {
		s.unanswered = s.tally.take(id)
	}
	if s.unanswered.empty() {
		return false
	}
	err := s.root.report(ctx, s.unanswered)
	if err != nil {
		s.tally.unhear(s.unanswered.carried)
		s.unanswered.carried = nil
		return false
	}
	s.unanswered = report{}
	return true
}
