package egress

import (
	"errors"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/egress/resolver"
)

// resolveWith asks this many DNS servers from now on. Each chat has a resolver of its own: an answer
// for one says nothing of what another has asked for.
func (n *network) resolveWith(servers int) {
	names := &resolver.Responder{Lists: n.lists, Book: n.book, Asked: n.asked,
		Client: resolver.NewClient(servers, n.upstream)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = names
}

func (n *network) resolver() *resolver.Responder {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names
}

func (n *network) allowed() []chat.Allow {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// lists reports whether the list has a name, on any port.
func (n *network) lists(host string) bool {
	return slices.ContainsFunc(n.allowed(), func(a chat.Allow) bool { return a.MatchesHost(host) })
}

// asked tells of a question that got no address.
func (n *network) asked(host string, why error) {
	switch {
	case why == nil:
	case errors.Is(why, resolver.ErrUnavailable):
		n.s.tell(Event{Chat: n.id, Host: host, Verdict: Failed, Why: text(why)})
	default:
		n.s.tell(Event{Chat: n.id, Host: host, Verdict: Refused, Why: text(why)})
	}
}
