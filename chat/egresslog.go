package chat

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
)

// EgressVerdict is what became of a connection, a flow of datagrams or a question for a name.
type EgressVerdict string

// The verdicts.
const (
	EgressAllowed EgressVerdict = "allowed" // it was carried
	EgressRefused EgressVerdict = "refused" // the chat's egress does not open it
	EgressFailed  EgressVerdict = "failed"  // the egress opens it, and it could not be carried
)

const (
	// MaxEgressText bounds a name and a reason in an [EgressEvent], in bytes.
	MaxEgressText = 256
	// maxEgressCount bounds the numbers of one: JSON has larger ones in no program alike.
	maxEgressCount = 1 << 53
)

// EgressKind is what the connections that one [EgressEvent] counts have in common.
type EgressKind struct {
	Verdict EgressVerdict `json:"verdict" enum:"allowed,refused,failed" doc:"What became of it."`
	// Host is the name, in its canonical form or quoted; empty for what was by address.
	Host    string `json:"host,omitempty" doc:"The name; none for what was by address."`
	Address string `json:"address,omitempty" doc:"The address; none for what was by name."`
	// Port is 0 for a question for a name.
	Port uint16 `json:"port,omitempty" doc:"The port; none for a question for a name."`
	UDP  bool   `json:"udp,omitempty" doc:"Whether it was datagrams."`
	Why  string `json:"why,omitempty" doc:"Why it was refused, or failed, or was cut."`
}

// EgressEvent counts connections, flows of datagrams and questions for names that are alike. A
// connection is counted at its end, a question if it got no address.
type EgressEvent struct {
	Time  time.Time `json:"time" doc:"When the first one ended."`
	Until time.Time `json:"until" doc:"When the last one ended."`
	EgressKind
	Count    int64 `json:"count" doc:"How many there were."`
	Sent     int64 `json:"sent" doc:"Bytes from the chat."`
	Received int64 `json:"received" doc:"Bytes to the chat."`
}

// EgressTotals counts by verdict.
type EgressTotals struct {
	Allowed int64 `json:"allowed" doc:"How many were carried."`
	Refused int64 `json:"refused" doc:"How many the egress did not open."`
	Failed  int64 `json:"failed" doc:"How many could not be carried."`
}

// EgressLog is what became of a chat's connections since chatd-root began.
type EgressLog struct {
	Entries []EgressEvent `json:"entries" doc:"The latest; alike ones of a minute are one."`
	Totals  EgressTotals  `json:"totals" doc:"Of all, also those no longer entries."`
	Open    EgressOpen    `json:"open" doc:"What is carried now, and is no entry yet."`
}

// Add counts another event of the same kind.
func (e *EgressEvent) Add(other EgressEvent) {
	if other.Time.Before(e.Time) {
		e.Time = other.Time
	}
	if other.Until.After(e.Until) {
		e.Until = other.Until
	}
	e.Count = sum(e.Count, other.Count)
	e.Sent = sum(e.Sent, other.Sent)
	e.Received = sum(e.Received, other.Received)
}

// Add counts an event.
func (t *EgressTotals) Add(e EgressEvent) {
	switch e.Verdict {
	case EgressAllowed:
		t.Allowed = sum(t.Allowed, e.Count)
	case EgressRefused:
		t.Refused = sum(t.Refused, e.Count)
	case EgressFailed:
		t.Failed = sum(t.Failed, e.Count)
	}
}

func sum(a, b int64) int64 { return min(a+b, maxEgressCount) }

// To is where it was to: a name or an address, with the port if there is one.
func (k EgressKind) To() string {
	to := k.Host
	if a, err := netip.ParseAddr(k.Address); err == nil {
		to = netip.AddrPortFrom(a, k.Port).String()
	} else if k.Port != 0 {
		to = fmt.Sprintf("%s:%d", k.Host, k.Port)
	}
	if k.UDP && to != "" {
		to = "udp:" + to
	}
	return to
}

// Validate reports the first invalid field, as [ErrInvalid]. A valid event can be printed on a
// terminal: its texts have printable characters alone.
func (e EgressEvent) Validate() error {
	verdicts := []EgressVerdict{EgressAllowed, EgressRefused, EgressFailed}
	switch {
	case !slices.Contains(verdicts, e.Verdict):
		return Invalid("cannot use verdict %s", Quote(string(e.Verdict)))
	case !isEgressText(e.Host) || !isEgressText(e.Why):
		return Invalid("cannot use host %s and why %s: want at most %d bytes of print each", Quote(e.Host),
			Quote(e.Why), MaxEgressText)
	case e.Host != "" && e.Address != "":
		return Invalid("cannot use a host and an address: want one of them")
	case e.Time.IsZero() || e.Until.Before(e.Time):
		return Invalid("cannot use the time from %v to %v", e.Time, e.Until)
	case !isEgressCount(e.Count) || e.Count == 0 || !isEgressCount(e.Sent) ||
		!isEgressCount(e.Received):
		return Invalid("cannot use the counts %d, %d and %d", e.Count, e.Sent, e.Received)
	}
	if a, err := netip.ParseAddr(e.Address); e.Address != "" && (err != nil || a.Zone() != "") {
		return Invalid("cannot use address %s", Quote(e.Address))
	}
	return nil
}

func isEgressCount(n int64) bool { return 0 <= n && n <= maxEgressCount }

func isEgressText(s string) bool { return len(s) <= MaxEgressText && s == EgressText(s) }

// EgressText is a text as an [EgressEvent] may have it: cut, and without what is no print.
func EgressText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > MaxEgressText {
		s = strings.ToValidUTF8(s[:MaxEgressText], "")
	}
	return s
}

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
