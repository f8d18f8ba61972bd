package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// accept accepts the chat's connections until its listener is closed.
func (n *network) accept() {
	for {
		n.connects.Wait(n.ctx) // whatever it says: the listener is closed then
		c, err := n.tcp.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			n.s.log.Warn("cannot accept a connection of a chat", "chat", n.id, "error", err)
			pause(n.ctx)
			continue
		}
		n.accepted(c)
	}
}

// accepted finds where a connection leads: the local address of its socket (tproxy). On loopback
// there is only the listener itself.
func (n *network) accepted(c *net.TCPConn) {
	dst := addrOf(c.LocalAddr())
	names := asksNames(n.allowed(), false, dst)
	if !names && (dst.Addr().IsLoopback() || dst == addrOf(n.tcp.Addr())) {
		reset(c)
		return
	}
	n.carry(c, dst)
}

// addrOf is an address of TCP or UDP.
func addrOf(a net.Addr) netip.AddrPort {
	if of, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return plain(of.AddrPort())
	}
	return netip.AddrPort{}
}

// connection is one TCP connection of a chat.
type connection struct {
	*carried
	client *net.TCPConn
}

// carry begins to carry a connection to dst.
func (n *network) carry(client *net.TCPConn, dst netip.AddrPort) {
	n.mu.Lock()
	entry := n.enter(dst, false)
	if entry != nil {
		c := connection{entry, client}
		n.all.Go(c.run)
	}
	n.mu.Unlock()
	if entry == nil {
		reset(client)
		n.s.tell(Event{Chat: n.id, Addr: dst, Verdict: Refused, Why: "too many connections"})
	}
}

// run carries the connection until it ends. What is not carried to its end is reset.
func (c connection) run() {
	defer c.leave()
	defer context.AfterFunc(c.ctx, func() { reset(c.client) })()
	err := c.serve()
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(cause, errOver) {
		err = cause
	}
	if err != nil {
		c.fail(err)
		reset(c.client)
		return
	}
	_ = c.client.Close() // both sides have ended it
}

// serve decides, connects and relays.
func (c connection) serve() error {
	_ = c.client.SetKeepAliveConfig(keepAlive()) // a hint
	if asksNames(c.n.allowed(), false, c.dst) {
		c.answersNames()
		if !c.dst.Addr().IsLoopback() {
			c.refuse(refusal("its questions for names went to the chat's own resolver"))
		}
		_ = c.n.resolver().ServeTCP(c.ctx, c.client) // it ends as its client wants
		return nil
	}
	t, err := c.decide()
	if err != nil {
		return err
	}
	server, err := c.connect(t)
	if err != nil {
		return err
	}
	defer context.AfterFunc(c.ctx, func() { reset(server) })()
	if t.host == "" {
		err = c.relay(server)
	} else {
		err = c.named(t, server)
	}
	if err != nil || c.ctx.Err() != nil { // c ends before its peers
		reset(server)
	}
	_ = server.Close() // it may be closed
	return err
}

// connect connects to the first address of the target that answers.
func (c connection) connect(t target) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	select {
	case c.n.connecting <- struct{}{}:
		defer func() { <-c.n.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	addrs, err := c.n.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	server, err := c.n.dial(ctx, addrs)
	if err != nil {
		return nil, err
	}
	if err := c.reached(addrOf(server.RemoteAddr())); err != nil {
		reset(server)
		return nil, err
	}
	if err := c.n.narrow(server); err != nil {
		reset(server)
		return nil, err
	}
	return server, nil
}
