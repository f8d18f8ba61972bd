package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// peer is the credentials of the connecting process, at connect(2).
type peer struct {
	uid  uint32
	gids []uint32
}

// conn is a connection with its peer.
type conn struct {
	net.Conn
	peer  peer
	leave func()

	// net/http uses these from the one goroutine that serves the connection. answering is true from the
	// start of a handler until net/http has sent all of its answer.
	name               string
	answering, refused bool
}

// Close also gives the peer's place back.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// guard accepts connections whose peer the kernel names, a bounded number for each uid.
type guard struct {
	net.Listener
	opt  ServerOptions
	open *quota.Counter // by uid
}

// Accept returns the next connection that guard allows, and closes the others.
func (g *guard) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p, err := peerOf(c)
		if err == nil {
			if leave, ok := g.open.Take(strconv.Itoa(int(p.uid))); ok {
				return &conn{Conn: c, peer: p, leave: leave}, nil
			}
		}
		g.opt.Log.Warn("connection closed", "uid", p.uid, "err", err, "limit", g.opt.MaxConns)
		if err := c.Close(); err != nil {
			g.opt.Log.Warn("cannot close a connection", "err", err)
		}
	}
}

type connKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// callerOf identifies the caller of r. The name of a peer without a role is not looked up.
func (s *Server) callerOf(r *http.Request) (chat.Caller, error) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return chat.Caller{}, fmt.Errorf("cannot tell who asks: no peer: %w", chat.ErrDenied)
	}
	caller := chat.Caller{UID: c.peer.uid, Role: s.roleOf(c.peer)}
	if caller.Role == "" {
		return caller, nil
	}
	name, err := c.nameBy(s.opt.NameOf)
	caller.Name = name
	return caller, err
}

func (s *Server) roleOf(p peer) chat.Role {
	in := func(groups []uint32) bool {
		return slices.ContainsFunc(p.gids, func(g uint32) bool { return slices.Contains(groups, g) })
	}
	switch {
	case p.uid == 0 || in(s.opt.Operators):
		return chat.RoleOperator
	case in(s.opt.Bridges):
		return chat.RoleBridge
	}
	return ""
}

// nameBy looks the peer's name up once for a connection; a failure is not kept.
func (c *conn) nameBy(nameOf func(uint32) (string, error)) (string, error) {
	if c.name != "" {
		return c.name, nil
	}
	name, err := nameOf(c.peer.uid)
	if err != nil {
		return "", fmt.Errorf("cannot find the name of uid %d: %w", c.peer.uid, err)
	}
	c.name = name
	return name, nil
}
