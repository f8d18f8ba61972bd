package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
)

// rootTimeout bounds a call of chatd-root, with the time until there is one: a restart takes less.
const rootTimeout = 5 * time.Second

// root is the connection to chatd-root, which may be replaced.
type root struct {
	timeout time.Duration

	mu      sync.Mutex
	conn    *uplink.Conn  // nil until one says hello, and when it has ended
	changed chan struct{} // closed when conn is another
}

func (r *root) set(c *uplink.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn = c
	close(r.changed)
	r.changed = make(chan struct{})
}

// unset forgets c, unless another has replaced it.
func (r *root) unset(c *uplink.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == c {
		r.conn = nil
	}
}

func (r *root) is(c *uplink.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn == c
}

func (r *root) current() (*uplink.Conn, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn, r.changed
}

// file asks for a socket. It waits for a chatd-root while there is none.
func (r *root) file(ctx context.Context, call uplink.Call) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for {
		c, changed := r.current()
		if c == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("cannot ask chatd-root for %s: %w",
					call.Verb, uplink.ErrGone)
			}
		}
		_, files, err := c.Call(ctx, call)
		switch {
		case errors.Is(err, uplink.ErrGone):
			r.unset(c)
			continue
		case err != nil:
			return nil, err
		case len(files) != 1:
			err := fmt.Errorf("cannot use %d files as %s", len(files), call.Verb)
			return nil, errors.Join(err, uplink.CloseFiles(files))
		}
		return files[0], nil
	}
}

// report passes a report to a chatd-root that is there.
func (r *root) report(ctx context.Context, what report) error {
	c, _ := r.current()
	if c == nil {
		return uplink.ErrGone
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, files, err := c.Call(ctx, uplink.Call{Verb: uplink.Events, Report: what.number,
		Events: what.events, Carried: what.carried})
	return errors.Join(err, uplink.CloseFiles(files))
}

// connectHost connects a socket of the chat in the host's network.
func connectHost[C net.Conn](ctx context.Context, n *network, udp bool, to netip.AddrPort) (c C, err error) {
	call := uplink.Call{Verb: uplink.Socket, Chat: n.id, UDP: udp, IPv6: to.Addr().Is6()}
	f, err := n.s.root.file(ctx, call)
	if err != nil {
		return c, err
	}
	defer f.Close()
	if err := connect(ctx, f, to); err != nil {
		return c, fmt.Errorf("cannot connect to %s: %w", to, err)
	}
	return fileConn[C](f)
}

// upstream returns a connection to a DNS server, for the chat's names.
func (n *network) upstream(ctx context.Context, server int, udp bool) (net.Conn, error) {
	call := uplink.Call{Verb: uplink.Upstream, Chat: n.id, Server: server, UDP: udp}
	f, err := n.s.root.file(ctx, call)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if !udp {
		if err := connected(ctx, f); err != nil {
			return nil, fmt.Errorf("cannot connect to DNS server %d: %w", server, err)
		}
	}
	return fileConn[net.Conn](f)
}

// reply returns what answers the datagrams of remote, a socket of the chat, to local. It is a
// [*net.UDPConn], or a [*rawReply] where chatd-root could make no such socket.
func (r *root) reply(
	ctx context.Context, id chat.ID, local, remote netip.AddrPort,
) (io.WriteCloser, error) {
	call := uplink.Call{Verb: uplink.Reply, Chat: id, UDP: true, Local: local, Remote: remote}
	call.IPv6 = local.Addr().Is6()
	f, err := r.file(ctx, call)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := fileConn[net.Conn](f)
	if err != nil {
		return nil, err
	}
	switch c := c.(type) {
	case *net.UDPConn:
		return c, nil
	case *net.IPConn:
		return &rawReply{IPConn: c, from: local.Port(), to: remote.Port()}, nil
	}
	return nil, errors.Join(fmt.Errorf("cannot answer datagrams by a %T", c), c.Close())
}

// fileConn is the connection of a socket, which must be of type C.
func fileConn[C net.Conn](f *os.File) (c C, err error) {
	made, err := net.FileConn(f)
	if err != nil {
		return c, fmt.Errorf("cannot use a socket: %w", err)
	}
	c, ok := made.(C)
	if !ok {
		return c, errors.Join(fmt.Errorf("cannot use a %T as a %T", made, c), made.Close())
	}
	return c, nil
}
