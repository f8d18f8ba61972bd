package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// maxPending is how many datagrams of a flow wait until it is connected. More are lost.
const maxPending = 16

// flowKey is a socket of the chat, and what it sends to.
type flowKey struct{ src, dst netip.AddrPort }

// flow is the datagrams between a socket of a chat and a destination.
type flow struct {
	*carried
	key flowKey

	// Of network.mu.
	host    *net.UDPConn // in the host's network; nil until connected
	pending [][]byte
}

// pass passes a datagram on, and begins its flow where there is none. One that the list does not
// open is dropped.
func (n *network) pass(key flowKey, b []byte) {
	n.mu.Lock()
	f := n.flows[key]
	if f == nil {
		t, err := n.decide(key.dst, true)
		if err == nil {
			f, err = n.begin(key)
		}
		if err != nil {
			n.mu.Unlock()
			n.s.tell(Event{Chat: n.id, Host: t.host, Addr: key.dst, UDP: true,
				Verdict: verdictOf(err), Why: text(err)})
			return
		}
	}
	host := f.host
	if host == nil && len(f.pending) < maxPending {
		f.pending = append(f.pending, append([]byte(nil), b...))
	}
	n.mu.Unlock()
	if host != nil {
		f.send(host, b)
	}
}

// begin makes a flow. Where the chat has its share the flow that was idle for longest ends. n.mu is
// held.
func (n *network) begin(key flowKey) (*flow, error) {
	if !n.begins.Take() {
		return nil, refusal("the chat begins too many flows of datagrams")
	}
	if len(n.flows) >= maxFlows {
		var oldest *flow
		for _, f := range n.flows {
			if oldest == nil || f.last.Load() < oldest.last.Load() {
				oldest = f
			}
		}
		delete(n.flows, oldest.key)
		oldest.cancel(errEvicted)
	}
	entry := n.enter(key.dst, true)
	if entry == nil {
		return nil, refusal("too many connections of all chats together")
	}
	f := &flow{carried: entry, key: key}
	n.flows[key] = f
	n.all.Go(f.run)
	return f, nil
}

// run carries the flow until it ends.
func (f *flow) run() {
	defer f.leave()
	err := f.serve()
	if cause := context.Cause(f.ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errIdle) {
		err = nil // datagrams have no other end
	}
	f.n.mu.Lock()
	if f.n.flows[f.key] == f {
		delete(f.n.flows, f.key)
	}
	f.err, f.pending = err, nil
	f.n.mu.Unlock()
}

// serve connects the flow on both sides, and passes datagrams.
func (f *flow) serve() error {
	t, err := f.decide()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	host, err := f.connect(ctx, t)
	if err != nil {
		return err
	}
	defer host.Close()
	reply, err := f.n.s.root.reply(ctx, f.n.id, f.key.dst, f.key.src)
	if err != nil {
		return err
	}
	defer reply.Close()
	defer context.AfterFunc(f.ctx, func() { _, _ = host.Close(), reply.Close() })()
	if err := f.reached(addrOf(host.RemoteAddr())); err != nil {
		return err
	}
	f.flush(host)
	in := make(chan error, 1)
	go func() { in <- f.pump(reply, host, f.received) }()
	if direct, ok := reply.(*net.UDPConn); ok {
		err = f.pump(host, direct, f.sent)
	}
	return errors.Join(err, <-in)
}

// connect connects to the first address of the target that the host has a route to. Datagrams give
// no sign of which one answers.
func (f *flow) connect(ctx context.Context, t target) (*net.UDPConn, error) {
	addrs, err := f.n.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	var errs error
	for _, to := range addrs {
		c, err := connectHost[*net.UDPConn](ctx, f.n, true, to)
		if err == nil {
			return c, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// flush sends what waits. What comes later goes without a wait.
func (f *flow) flush(host *net.UDPConn) {
	f.n.mu.Lock()
	pending := f.pending
	f.host, f.pending = host, nil
	f.n.mu.Unlock()
	for _, b := range pending {
		f.send(host, b)
	}
}

// send sends a datagram outside. One that cannot be sent is lost.
func (f *flow) send(host *net.UDPConn, b []byte) {
	n, err := host.Write(b)
	if errors.Is(err, unix.ECONNREFUSED) { // of an earlier one (udp(7)); this one is not sent yet
		n, err = host.Write(b)
	}
	if err == nil {
		f.sent(int64(n))
	}
}

// pump passes datagrams from src to dst until one of them is closed. A datagram that the other side
// refused (ICMP) or that cannot be sent is lost.
func (f *flow) pump(dst io.Writer, src *net.UDPConn, count func(int64)) error {
	for {
		_, err := readable(src)
		if err == nil {
			err = f.pumpOne(dst, src, count)
		}
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EHOSTUNREACH) &&
			!errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EMSGSIZE) {
			f.cancel(err)
			return err
		}
	}
}

func (f *flow) pumpOne(dst io.Writer, src *net.UDPConn, count func(int64)) error {
	b := f.n.s.buffer()
	defer f.n.s.buffers.Put(b)
	n, err := src.Read(b[:])
	if err != nil {
		return err
	}
	if n, err = dst.Write(b[:n]); err == nil {
		count(int64(n))
	}
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
