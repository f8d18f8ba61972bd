package egress

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHeader is how many bytes a header has, of a request or an answer. net/http reads 4 KiB
	// more of a request, and takes some 23 bytes of memory for one of a header of tiny lines:
	// 0.8 MiB for each session (TestWebMemory). Trailers have to
	// fit into its buffer, of 4 KiB.
	maxHeader     = 32 << 10
	headerTimeout = 30 * time.Second
	// maxFields is how many fields a header has that is passed on, which copies it.
	maxFields = 256
	// Sessions of HTTP of a chat that have requests; more wait. Clients such as npm open some 50
	// connections.
	maxSessions = 64
	// webMemory is how many bytes the sessions of HTTP of all chats may cost at worst; more
	// sessions wait.
	webMemory = 600 << 20
)

// switchedGrace is how long a connection goes on after 101 when its client has ended its side:
// the peers may end theirs one after the other. Tests set it.
var switchedGrace = 30 * time.Second

// web carries HTTP/1 of connections by name. It reads each request and sends it anew, so that the
// server sees the request that was checked, with one Host, one length and no second request inside
// (request smuggling: RFC 9112, section 11.2).
type web struct {
	*handover
	copies webBuffers
	costs  budget // bytes
}

func newWeb(s *server) *web {
	w := &web{handover: newHandover(s.log,
		&http.Server{MaxHeaderBytes: maxHeader, Protocols: protocols(false)})}
	w.costs.left, w.costs.first = webMemory, streamsCost
	return w
}

// protocols are HTTP/1, and HTTP/2 if it is wanted.
func protocols(http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(http2)
	return p
}

// webSession is a client's connection, for http.Server.
type webSession struct {
	net.Conn // the client's
	c        connection
	t        target
	begin    []byte       // was read before
	scheme   string       // of its requests
	handler  http.Handler // of requests that are accepted
	ended    chan struct{}
	end      func()
	switched atomic.Bool // to another protocol, with 101
	activity

	mu     sync.Mutex
	server *net.TCPConn   // the first connection to the server, until it is used
	open   sync.WaitGroup // connections to the server
}

// newWebSession returns a session of a client, of whom b was read before.
func newWebSession(c connection, t target, server *net.TCPConn, b []byte) *webSession {
	s := &webSession{Conn: c.client, c: c, t: t, scheme: "http", begin: b, server: server,
		ended: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	return s
}

// begin waits until the chat may have requests of one session more, which may cost this many bytes.
func (w *web) begin(c connection, cost int64) error {
	timeout := time.NewTimer(enterTimeout)
	defer timeout.Stop()
	select {
	case c.n.sessions <- struct{}{}:
	case <-timeout.C:
		return busy{refusal("the chat has too many connections of HTTP")}
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	err := w.pay(c, cost, timeout)
	if err != nil {
		<-c.n.sessions
	}
	return err
}

// pay waits until the chat may cost so much more.
func (w *web) pay(c connection, cost int64, timeout *time.Timer) error {
	for {
		ok, freed := w.costs.take(cost, &c.n.web, &c.n.owner.web, c.n.owner.chats.Load())
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-timeout.C:
			return busy{refusal("all chats together have too many connections of HTTP")}
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

// end is the inverse of begin.
func (w *web) end(c connection, cost int64) {
	w.costs.give(cost, &c.n.web, &c.n.owner.web)
	<-c.n.sessions
}

// carry serves the requests of a client, of whom b was read before. It returns when all connections
// are closed, except for server's socket where it was not used.
func (w *web) carry(c connection, t target, server *net.TCPConn, b []byte) error {
	s := newWebSession(c, t, server, b)
	s.http1, s.cost = true, plainCost-restingCost
	leave, err := s.enter(restingCost)
	if err != nil {
		return err
	}
	defer leave()
	transport := s.transport()
	s.handler = s.reverseProxy(transport, &w.copies)
	w.pass(s, s, transport)
	return nil
}

// transport connects to the target's server alone.
func (s *webSession) transport() *http.Transport {
	return &http.Transport{
		DialContext:            s.dial,
		Protocols:              protocols(false),
		DisableCompression:     true, // it would add Accept-Encoding
		MaxIdleConnsPerHost:    1,
		ExpectContinueTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// dial returns the connection that was made before the first request, and later another one.
func (s *webSession) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c.ctx.Err() != nil {
		return nil, context.Cause(s.c.ctx)
	}
	server := s.server
	s.server = nil
	if server == nil {
		if err := s.c.n.redial(s.c.ctx); err != nil {
			return nil, err
		}
		var err error
		if server, err = s.c.connect(s.t); err != nil {
			return nil, err
		}
	}
	s.open.Add(1)
	w := &webServer{Conn: server, server: server, c: s.c}
	w.close = sync.OnceValue(func() error {
		defer s.open.Done()
		s.c.left(addrOf(server.RemoteAddr()))
		return server.Close()
	})
	// The session ends what it has opened: net/http forgets connections that it refuses to use.
	context.AfterFunc(s.c.ctx, func() { reset(server); _ = w.Close() })
	return w, nil
}

// Read is that of the client's connection. HTTP/1 holds a whole header before it asks anybody.
func (s *webSession) Read(p []byte) (int, error) {
	n, err := s.read(p)
	if n > 0 && s.http1 {
		s.begins()
	}
	return n, err
}

func (s *webSession) read(p []byte) (int, error) {
	if len(s.begin) > 0 {
		n := copy(p, s.begin)
		s.begin = s.begin[n:]
		return n, nil
	}
	s.begin = nil
	n, err := s.Conn.Read(p)
	if err != nil && s.switched.Load() {
		end := time.AfterFunc(switchedGrace, func() { s.c.cancel(errOver) })
		context.AfterFunc(s.c.ctx, func() { end.Stop() })
	}
	return n, err
}

// Close ends the session: with a reset if it was ended before its peers did.
func (s *webSession) Close() error {
	if s.c.ctx.Err() != nil {
		_ = s.c.client.SetLinger(0)
	}
	err := s.Conn.Close()
	s.end()
	return err
}

// CloseWrite ends the client's side of an upgraded connection.
func (s *webSession) CloseWrite() error { return s.c.client.CloseWrite() }

// webServer is a connection to the server, whose bytes are counted.
type webServer struct {
	net.Conn
	server *net.TCPConn // is Conn
	c      connection
	close  func() error
}

// Read counts what the server sends.
func (w *webServer) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.c.received(int64(n))
	return n, err
}

// Write counts what is sent.
func (w *webServer) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.c.sent(int64(n))
	return n, err
}

// Close closes the connection once.
func (w *webServer) Close() error { return w.close() }

// CloseWrite ends the client's side of an upgraded connection.
func (w *webServer) CloseWrite() error { return w.server.CloseWrite() }
