package egress

import (
	"context"
	"time"

	"github.com/chatd/chatd/chat"
)

// A chat's refusals are reported to who asks about it as often as this: those of a flood are counted
// together within a second.
const (
	reportsAtOnce = 3
	askedEvery    = time.Second
)

// connections are what of a chat is carried now; none of a chat that is not open. It reports what was
// refused before.
func (s *server) connections(id chat.ID) chat.EgressOpen {
	n := s.network(id)
	if n == nil {
		return chat.NewEgressOpen(nil)
	}
	all, due := n.open()
	if due {
		s.report(context.Background(), id)
	}
	return chat.NewEgressOpen(all)
}

// open also says whether it is time for a report.
func (n *network) open() (all []chat.EgressConnection, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.carried {
		if c.real.IsValid() {
			all = append(all, c.connection())
		}
	}
	return all, n.reports.Take()
}

// connection is what is told of c while it is carried. n.mu is held.
func (c *carried) connection() chat.EgressConnection {
	k := Event{Host: c.target.host, Addr: c.dst, UDP: c.udp}.kind()
	return chat.EgressConnection{Since: c.since.UTC().Round(0), Host: k.Host, Address: k.Address,
		Port: k.Port, UDP: k.UDP, Sent: c.out.Load(), Received: c.in.Load()}
}

// carry counts one connection more or less that is carried of a chat.
func (t *tally) carry(id chat.ID, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.carried[id] += more; t.carried[id] == 0 {
		delete(t.carried, id)
	}
	t.unheard[id] = true
}

// unheardAll says that chatd-root is another, which has heard nothing.
func (t *tally) unheardAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.carried {
		t.unheard[id] = true
	}
}
