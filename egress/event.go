package egress

import (
	"errors"
	"net/netip"

	"github.com/chatd/chatd/chat"
)

// Verdicts of an [Event].
const (
	Allowed = chat.EgressAllowed
	Refused = chat.EgressRefused
	Failed  = chat.EgressFailed
)

// Event is what became of one connection, one flow of datagrams or one question for a name. A
// connection is told once, at its end; a refused datagram each time.
type Event struct {
	Chat    chat.ID
	Host    string         // of a connection by name
	Addr    netip.AddrPort // where the chat connected to; invalid for a question
	UDP     bool
	Verdict chat.EgressVerdict
	Why     string // of a refusal, a failure, or an end other than the peers' own
	Out, In int64  // bytes from the chat, and to it
}

// refusal is a connection that the list does not open, and why.
type refusal string

func (r refusal) Error() string { return string(r) }

// verdictOf is the verdict on what ended with err before it was carried.
func verdictOf(err error) chat.EgressVerdict {
	switch {
	case err == nil:
		return Allowed
	case isRefusal(err):
		return Refused
	}
	return Failed
}

func isRefusal(err error) bool { _, ok := errors.AsType[refusal](err); return ok }

func isFailure(err error) bool { _, ok := errors.AsType[failure](err); return ok }

// tell counts an event, for the next report.
func (s *server) tell(e Event) {
	s.tally.add(e)
	if s.told != nil {
		s.told(e)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return chat.ErrorText(err)
}
