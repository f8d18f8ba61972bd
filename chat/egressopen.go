package chat

import (
	"slices"
	"time"
)

// MaxEgressOpen bounds the connections of an [EgressOpen].
const MaxEgressOpen = 100

// EgressConnection is a connection or a flow of datagrams that is carried now.
type EgressConnection struct {
	Since    time.Time `json:"since" doc:"When it began."`
	Host     string    `json:"host,omitempty" doc:"The name; none for what is by address."`
	Address  string    `json:"address,omitempty" doc:"The address; none for what is by name."`
	Port     uint16    `json:"port" doc:"The port."`
	UDP      bool      `json:"udp,omitempty" doc:"Whether it is datagrams."`
	Sent     int64     `json:"sent" doc:"Bytes from the chat so far."`
	Received int64     `json:"received" doc:"Bytes to the chat so far."`
}

// EgressOpen is what of a chat is carried now.
type EgressOpen struct {
	Count int `json:"count" doc:"How many there are."`
	// Connections are all of them, or the oldest and the newest ones.
	Connections []EgressConnection `json:"connections" doc:"By age; at most 100."`
	Unknown     string             `json:"unknown,omitempty" doc:"Why this is not known."`
}

// NewEgressOpen is about connections in any order.
func NewEgressOpen(all []EgressConnection) EgressOpen {
	slices.SortFunc(all, func(a, b EgressConnection) int { return a.Since.Compare(b.Since) })
	n := len(all)
	if n == 0 {
		all = []EgressConnection{} // [] in JSON
	}
	if n > MaxEgressOpen {
		all = slices.Delete(all, MaxEgressOpen/2, n-MaxEgressOpen/2)
	}
	return EgressOpen{Count: n, Connections: all}
}

// To is where it is to: a name or an address, with the port.
func (c EgressConnection) To() string { return c.event().To() }

// event is the event of its end, were it now.
func (c EgressConnection) event() EgressEvent {
	return EgressEvent{Time: c.Since, Until: c.Since, Count: 1, Sent: c.Sent, Received: c.Received,
		EgressKind: EgressKind{Verdict: EgressAllowed, Host: c.Host, Address: c.Address,
			Port: c.Port, UDP: c.UDP}}
}

// Validate reports the first invalid field of what is known, as [ErrInvalid]; see
// [EgressEvent.Validate].
func (o EgressOpen) Validate() error {
	n := len(o.Connections)
	if n > MaxEgressOpen || o.Count < n || !isEgressCount(int64(o.Count)) || o.Unknown != "" {
		return Invalid("cannot use %d connections of %d: want at most %d", n, o.Count, MaxEgressOpen)
	}
	for _, c := range o.Connections {
		if err := c.event().Validate(); err != nil {
			return err
		}
	}
	return nil
}
