package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
)

// Socket is the name of the keeper's socket in its directory.
const Socket = "sock"

// StartMasks is the directory beside the keeper's with the two files that bubblewrap mounts over
// denied names before a session begins. The keeper takes those mounts over as its own.
const StartMasks = "masks"

// What masks are copies of: an empty directory and an empty file, root's, without a mode.
const (
	ClosedDirectory = "closed-directory"
	ClosedFile      = "closed-file"
)

// The verbs of a [Order].
const (
	// Hold raises the walls of the rules in a session, or brings them to new rules.
	Hold = "hold"
	// Drop forgets a session; its walls end with it.
	Drop = "drop"
	// Probe says what is kept of a session, or without one that the keeper is there.
	Probe = "probe"
	// Refused hands out, once, which opens were refused since it was asked last.
	Refused = "refused"
	// Why names what closes a path of a session.
	Why = "why"
)

// Order is what chatd asks of the keeper, one JSON object for a connection.
type Order struct {
	Verb string  `json:"verb"`
	Chat chat.ID `json:"chat,omitempty"`
	// UID is the chat's; PID and Start name the session's pid 1 (proc(5), field 22).
	UID   uint32 `json:"uid,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Home and Agent are what the rules are compiled for, File and Text the rules.
	Home  string `json:"home,omitempty"`
	Agent string `json:"agent,omitempty"`
	File  string `json:"file,omitempty"`
	Text  []byte `json:"text,omitempty"`
	// Path is what Why asks about.
	Path []byte `json:"path,omitempty"`
}

// Answer is what came of an order.
type Answer struct {
	// Masks, ReadOnly and Islands count the mounts that keep what is there now.
	Masks      int `json:"masks"`
	ReadOnly   int `json:"read_only"`
	Exceptions int `json:"islands"`
	// Looked is how many names were looked at.
	Looked int `json:"looked"`
	// Later says what keeps files that are made later; empty if nothing does.
	Later string `json:"later"`
	// Refused are the refused opens of some chats; MoreRefused: there are others, ask again.
	Refused     []Refusals `json:"refused,omitempty"`
	MoreRefused bool       `json:"more_refused,omitempty"`
	// By is the name that rules deny, of what Why asked about.
	By    []byte `json:"by,omitempty"`
	Error string `json:"error,omitempty"`
}

// Refusals are the opens of one chat that were refused: some files, and how many opens of
// others there were.
type Refusals struct {
	Chat  chat.ID       `json:"chat"`
	Files []RefusedFile `json:"files"`
	More  uint64        `json:"more,omitempty"`
}

// RefusedFile is a file that was not opened, where it was, how often, and the name that rules
// deny: its own, or one that it or a directory around it had. By is empty where it is not
// known any more which that was.
type RefusedFile struct {
	Path  []byte `json:"path"`
	By    []byte `json:"by,omitempty"`
	Times uint64 `json:"times"`
}

// Bounds of what crosses the keeper's socket, in bytes: the rules may have 1 MiB.
const (
	maxOrder  = 4 << 20
	maxAnswer = 64 << 10
)

// orderTimeout bounds one order: the longest is a walk of [maxWalk] names.
const orderTimeout = 2 * time.Minute

// ErrEnded is a keeper that ended before it answered. What it noted a later worker takes up.
var ErrEnded = errors.New("it ended before it answered")

// Ask gives the keeper behind a unix socket one order and waits for the answer.
// A refused order is an error, and so is a keeper that ends meanwhile ([ErrEnded]).
func Ask(ctx context.Context, socket string, order Order) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("cannot ask the keeper of file rules: %w: %w", err, chat.ErrUnsupported)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(order); err != nil {
		return Answer{}, fmt.Errorf("cannot ask the keeper of file rules: %w", orEnded(err))
	}
	var a Answer
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&a); err != nil {
		return Answer{}, fmt.Errorf("cannot read the answer of the keeper of file rules: %w", orEnded(err))
	}
	if a.Error != "" {
		return a, fmt.Errorf("cannot keep the file rules of chat %s: %s", order.Chat, a.Error)
	}
	return a, nil
}

// orEnded adds [ErrEnded] to what a connection says whose other end is gone.
func orEnded(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return err
}
