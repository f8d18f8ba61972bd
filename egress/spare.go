package egress

import (
	"context"
	"os"
	"sync"

	"github.com/chatd/chatd/uplink"
)

// maxSpares is how many spare sockets all chats have together.
const maxSpares = 512

// spare is a socket of a chat in the host's network that no connection has yet. With one at hand,
// a connect waits for no turn of chatd-root's. A chat has one at most, and only while it connects:
// each connection that is made asks for the next one.
//
// A spare opens nothing: the packet rules look at the owner of a socket, which never changes, when
// it sends. It belongs to one network, and ends with it.
type spare struct {
	mu     sync.Mutex
	turn   int // counts what drop has ended
	making bool
	file   *os.File // nil if there is none
	ipv6   bool
	swept  bool // nobody has needed it since the sweep before
}

// outside returns a socket of the chat in the host's network, for TCP.
func (n *network) outside(ctx context.Context, ipv6 bool) (*os.File, error) {
	if f := n.takeSpare(ipv6); f != nil {
		return f, nil
	}
	return n.askOutside(ctx, ipv6)
}

func (n *network) askOutside(ctx context.Context, ipv6 bool) (*os.File, error) {
	return n.s.root.file(ctx, uplink.Call{Verb: uplink.Socket, Chat: n.id, IPv6: ipv6})
}

// takeSpare returns the spare, or nil if there is none of this family.
func (n *network) takeSpare(ipv6 bool) *os.File {
	n.spare.mu.Lock()
	defer n.spare.mu.Unlock()
	f := n.spare.file
	if f != nil && n.spare.ipv6 == ipv6 {
		n.spare.file = nil
		n.s.spares.Add(-1)
		return f
	}
	return nil
}

// prepare begins to get a spare, unless there is one of this family. The caller is one of n.all.
func (n *network) prepare(ipv6 bool) {
	n.spare.mu.Lock()
	defer n.spare.mu.Unlock()
	n.spare.swept = false
	if n.spare.making || n.spare.file != nil && n.spare.ipv6 == ipv6 {
		return
	}
	n.closeSpare()
	if n.s.spares.Add(1) > maxSpares {
		n.s.spares.Add(-1)
		return
	}
	n.spare.making = true
	turn := n.spare.turn
	n.all.Go(func() {
		f, err := n.askOutside(n.ctx, ipv6)
		n.spare.mu.Lock()
		defer n.spare.mu.Unlock()
		n.spare.making, n.spare.file, n.spare.ipv6 = false, f, ipv6
		if err != nil { // the next connection asks itself, and tells of it
			n.s.spares.Add(-1)
		} else if n.spare.turn != turn {
			n.closeSpare()
		}
	})
}

// dropSpare closes the spare, and the one that is being made.
func (n *network) dropSpare() {
	n.spare.mu.Lock()
	defer n.spare.mu.Unlock()
	n.spare.turn++
	n.closeSpare()
}

// sweepSpare closes the spare of a chat that has not connected since the sweep before.
func (n *network) sweepSpare() {
	n.spare.mu.Lock()
	defer n.spare.mu.Unlock()
	if n.spare.swept {
		n.closeSpare()
	}
	n.spare.swept = true
}

// closeSpare closes the spare. Its lock is held.
func (n *network) closeSpare() {
	if n.spare.file != nil {
		n.s.spares.Add(-1)
		_ = n.spare.file.Close() // it was never used
		n.spare.file = nil
	}
}
