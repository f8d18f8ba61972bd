package egress

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// idleTCP and idleUDP are how long a connection and a flow live without a byte. RFC 5382,
	// REQ-5, wants two hours and four minutes of a NAT for TCP; RFC 4787, REQ-5, two minutes for
	// UDP and recommends five.
	idleTCP = 2 * time.Hour
	idleUDP = 3 * time.Minute
)

// carried is one TCP connection or one flow of datagrams: an entry of its network's table.
type carried struct {
	n      *network
	dst    netip.AddrPort
	udp    bool
	since  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when its sockets are
	last   atomic.Int64  // when the last byte went, as Unix nanoseconds
	out    atomic.Int64  // bytes from the chat
	in     atomic.Int64  // bytes to it

	// Of network.mu.
	target  target
	decided bool             // target is valid
	real    netip.AddrPort   // the last peer outside, once connected
	reals   []netip.AddrPort // all that are connected: HTTP has several
	err     error            // why it is not carried, or was ended
}

// enter makes an entry of the table. It returns nil where the chat has its share, or all chats
// together have theirs. n.mu is held.
func (n *network) enter(dst netip.AddrPort, udp bool) *carried {
	if n.closed || !udp && n.connections >= maxConnections {
		return nil
	}
	if ok, _ := n.s.slots.take(1, &n.slots, &n.owner.slots, 0); !ok {
		return nil
	}
	c := &carried{n: n, dst: dst, udp: udp, since: time.Now(), done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(n.ctx)
	c.touch()
	n.carried[c] = true
	if !udp {
		n.connections++
	}
	return c
}

// leave removes the entry and tells of it. Its sockets are closed.
func (c *carried) leave() {
	n := c.n
	n.mu.Lock()
	delete(n.carried, c)
	if !c.udp {
		n.connections--
		n.servers -= len(c.reals)
	}
	e := Event{Chat: n.id, Host: c.target.host, Addr: c.dst, UDP: c.udp, Verdict: Allowed,
		Out: c.out.Load(), In: c.in.Load()}
	if !c.real.IsValid() || isRefusal(c.err) || isFailure(c.err) {
		e.Verdict = verdictOf(c.err)
	}
	e.Why = text(c.err)
	own := c.decided && c.target == target{} && c.dst.Addr().IsLoopback()
	if c.real.IsValid() {
		n.s.tally.carry(n.id, -1)
	}
	n.mu.Unlock()
	n.s.slots.give(1, &n.slots, &n.owner.slots)
	c.cancel(errOver)
	if !own { // not what the chat asks its own resolver
		n.s.tell(e)
	}
	close(c.done)
}

// fail records why c ends. The first reason stands.
func (c *carried) fail(err error) {
	c.cancel(err)
	c.refuse(context.Cause(c.ctx)) // it may have been ended before, and failed of that
}

// refuse records why c is refused, and leaves its end to the caller.
func (c *carried) refuse(err error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// decide finds the target; from now on a change of the list ends c.
func (c *carried) decide() (target, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	t, err := c.n.decide(c.dst, c.udp)
	c.target, c.decided = t, true
	return t, err
}

// answersNames says that c carries questions for names, to nowhere outside.
func (c *carried) answersNames() {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.target, c.decided = target{}, true
}

// reached records the peer. The list may have changed since its address was chosen.
func (c *carried) reached(real netip.AddrPort) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if !c.target.usable(c.n.list, real) {
		return errUnlisted
	}
	if !c.real.IsValid() {
		c.n.s.tally.carry(c.n.id, 1)
	}
	c.real = real
	c.reals = append(c.reals, real)
	if !c.udp {
		c.n.servers++
	}
	return nil
}

// left forgets a server, to which the connection is closed.
func (c *carried) left(real netip.AddrPort) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if i := slices.Index(c.reals, real); i >= 0 {
		c.reals = slices.Delete(c.reals, i, i+1)
		c.n.servers--
	}
}

// stillListed reports whether the list opens c. n.mu is held.
func (c *carried) stillListed() bool {
	if !c.decided || c.target == (target{}) {
		return true
	}
	for _, real := range c.reals {
		if !c.target.usable(c.n.list, real) {
			return false
		}
	}
	return c.target.listed(c.n.list)
}

// began is an origin of times that no step of the wall clock moves: time.Since reads the monotonic
// one.
var began = time.Now()

func (c *carried) touch() { c.last.Store(int64(time.Since(began))) }

// sent and received count bytes.
func (c *carried) sent(n int64)     { c.out.Add(n); c.touch() }
func (c *carried) received(n int64) { c.in.Add(n); c.touch() }

// idle reports whether no byte went for too long.
func (c *carried) idle(now time.Time) bool {
	limit := idleTCP
	if c.udp {
		limit = idleUDP
	}
	return now.Sub(began)-time.Duration(c.last.Load()) > limit
}

// sweep ends idle connections. One timer for all costs less than one each.
func (s *server) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.networks {
		n.mu.Lock()
		for c := range n.carried {
			if c.idle(now) {
				c.cancel(errIdle)
			}
		}
		n.mu.Unlock()
	}
}
