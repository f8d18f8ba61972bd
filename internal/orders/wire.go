package orders

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/chatd/chatd/chat"
)

// Socket is the name of the enforcer's socket in its directory.
const Socket = "sock"

// StartMasks is a directory beside the enforcer's. bubblewrap mounts its two entries over denied
// paths when it sets a session up, and the enforcer adopts those mounts.
const StartMasks = "masks"

// Masks are copies of these: an empty directory and an empty file, owned by root, without a mode.
const (
	ClosedDirectory = "closed-directory"
	ClosedFile      = "closed-file"
)

// The verbs of an [Order].
const (
	// Apply applies rules to a session, or replaces the rules that it has.
	Apply = "hold"
	// Drop forgets a session that ends; its mounts end with it.
	Drop = "drop"
	// Probe reports what is mounted in a session or, without a session, that the enforcer runs.
	Probe = "probe"
	// Refused returns the opens that were refused since the last such order.
	Refused = "refused"
	// Lend sends the two fanotify groups to chatd. The connection lasts as long as the worker.
	Lend = "lend"
	// Why returns the denied name that closes a path of a session.
	Why = "why"
)

// Order is a request of chatd to the enforcer: one JSON object on each connection.
type Order struct {
	Verb string  `json:"verb"`
	Chat chat.ID `json:"chat,omitempty"`
	// UID is the chat's; PID and Start name the session's pid 1 (proc(5), field 22).
	UID   uint32 `json:"uid,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Home and Agent are the scope of the rules, which are compiled (package filerules).
	Home  string          `json:"home,omitempty"`
	Agent string          `json:"agent,omitempty"`
	Rules json.RawMessage `json:"rules,omitempty"`
	// Path is what Why asks about.
	Path []byte `json:"path,omitempty"`
}

// Answer is the result of an order.
type Answer struct {
	// Masks, ReadOnly and Exceptions count the session's mounts by their class.
	Masks      int `json:"masks"`
	ReadOnly   int `json:"read_only"`
	Exceptions int `json:"islands"`
	// Looked is the number of names that the walk examined.
	Looked int `json:"looked"`
	// Later names the mechanism that guards files made later; empty if there is none.
	Later string `json:"later"`
	// Refused are the refused opens of some chats. MoreRefused asks for another order: more chats
	// have refused opens than one answer holds.
	Refused     []Refusals `json:"refused,omitempty"`
	MoreRefused bool       `json:"more_refused,omitempty"`
	// By answers Why: the denied name of the path.
	By    []byte `json:"by,omitempty"`
	Error string `json:"error,omitempty"`
}

// Refusals are the refused opens of one chat. Files has the first few files, and More counts the
// opens of all others.
type Refusals struct {
	Chat  chat.ID       `json:"chat"`
	Files []RefusedFile `json:"files"`
	More  uint64        `json:"more,omitempty"`
}

// RefusedFile is a file whose opens were refused Times times. By is the name that the rules deny:
// the file's own, or an earlier one of the file or of a directory around it. By is empty if that
// name is no longer known.
type RefusedFile struct {
	Path  []byte `json:"path"`
	By    []byte `json:"by,omitempty"`
	Times uint64 `json:"times"`
}

// Bounds of an order and of an answer, in bytes. The rules may have filerules.MaxCompiled.
const (
	maxOrder  = 5 << 20
	MaxAnswer = 64 << 10
)

// Timeout bounds one order. The longest walks the trees of a session.
const Timeout = 2 * time.Minute

// Read decodes an order strictly: an unknown key may be a restriction of a newer chatd.
func Read(r io.Reader) (Order, error) {
	var o Order
	d := json.NewDecoder(io.LimitReader(r, maxOrder))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return Order{}, fmt.Errorf("cannot read the order: %w", err)
	}
	return o, nil
}
