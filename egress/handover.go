package egress

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// handover is a server of HTTP for connections that chats have begun already. It is its own
// listener.
type handover struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// newHandover serves sessions by s, which has what differs from one handover to the other.
func newHandover(log *slog.Logger, s *http.Server) *handover {
	s.Handler = http.HandlerFunc(serveSession)
	s.DisableGeneralOptionsHandler = true // OPTIONS * is for the server outside
	s.ReadHeaderTimeout = headerTimeout
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	s.ConnState = func(c net.Conn, now http.ConnState) { sessionOf(c).became(now) }
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, sessionKey{}, sessionOf(c))
	}
	h := &handover{server: s, conns: make(chan net.Conn), closed: make(chan struct{})}
	h.close = sync.OnceFunc(func() { close(h.closed) })
	return h
}

// sessionKey is the key of a request's *webSession.
type sessionKey struct{}

// sessionOf is the session of a connection that was passed.
func sessionOf(c net.Conn) *webSession {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*webSession)
}

// serve serves what pass hands over, until ctx ends.
func (h *handover) serve(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = h.server.Close() })()
	_ = h.server.Serve(h) // it says that it was closed
}

// Accept is that of [net.Listener].
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close is that of [net.Listener].
func (h *handover) Close() error { h.close(); return nil }

// Addr is that of [net.Listener].
func (h *handover) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// pass hands the client of a session over, whose requests go by transport. It returns when all
// connections are closed, except for the session's first one to the server where it was not used.
func (h *handover) pass(s *webSession, client net.Conn, transport *http.Transport) {
	select {
	case h.conns <- client:
		select {
		case <-s.ended:
		case <-s.c.ctx.Done(): // the client's socket is being closed
		}
		transport.CloseIdleConnections()
		s.c.cancel(errOver) // ends a request that is still under way
		<-s.ended
	case <-s.c.ctx.Done():
	}
	s.mu.Lock()
	s.server = nil // from here on there is no other connection to the server
	s.mu.Unlock()
	s.open.Wait()
}
