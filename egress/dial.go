package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	// dialTimeout bounds a connection until it is connected, with the look-up of its name.
	dialTimeout = 10 * time.Second
	// explainTimeout bounds a look-up whose asker gives up after 5 s.
	explainTimeout = 4 * time.Second
	// nextAddress is the Connection Attempt Delay of RFC 8305, section 5.
	nextAddress = 300 * time.Millisecond
	// maxAddresses is how many addresses of a name are tried.
	maxAddresses = 6
)

// dial connects to the first address that answers, as Happy Eyeballs does (RFC 8305): the next one
// is tried when one has failed or has not answered for a while.
func (n *network) dial(ctx context.Context, to []netip.AddrPort) (*net.TCPConn, error) {
	if len(to) == 1 {
		only := n.attempt(ctx, to[0]) // a goroutine of its own would cost a switch
		return only.conn, only.err
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attempt, len(to))
	begun, ended := 0, 0
	defer func() {
		cancel()
		for range begun - ended {
			(<-results).close()
		}
	}()
	var errs error
	for ended < len(to) {
		if begun < len(to) {
			go func(a netip.AddrPort) { results <- n.attempt(ctx, a) }(to[begun])
			begun++
		}
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				return r.conn, nil
			}
			errs = errors.Join(errs, r.err)
		case <-delay(begun < len(to)):
		}
	}
	return nil, errs
}

// delay is when the next address is tried, if there is one.
func delay(more bool) <-chan time.Time {
	if !more {
		return nil
	}
	return time.After(nextAddress)
}

// attempt is the result of one connect(2).
type attempt struct {
	conn *net.TCPConn
	err  error
}

func (a attempt) close() {
	if a.conn != nil {
		reset(a.conn)
	}
}

func (n *network) attempt(ctx context.Context, to netip.AddrPort) attempt {
	c, err := connectHost[*net.TCPConn](ctx, n, false, to)
	if err == nil {
		_ = c.SetKeepAliveConfig(keepAlive()) // a hint
	}
	return attempt{c, err}
}

// keepAlive finds peers that are gone without a word (tcp(7)).
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second,
		Count: 8}
}

// interleave sorts IPv6 and IPv4 in turn (RFC 8305, section 4).
func interleave(addrs []netip.Addr, port uint16) (out []netip.AddrPort) {
	var six, four []netip.AddrPort
	for _, a := range addrs {
		if to := netip.AddrPortFrom(a, port); a.Is6() {
			six = append(six, to)
		} else {
			four = append(four, to)
		}
	}
	for len(six)+len(four) > 0 && len(out) < maxAddresses {
		if len(six) > 0 {
			out, six = append(out, six[0]), six[1:]
		}
		if len(four) > 0 {
			out, four = append(out, four[0]), four[1:]
		}
	}
	return out[:min(len(out), maxAddresses)]
}

// reset ends a connection so that its peer sees a reset (SO_LINGER of socket(7)).
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close() // it may be closed
}
