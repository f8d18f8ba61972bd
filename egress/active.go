package egress

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// What a connection whose TLS is ended here may cost at worst, in bytes. One without a request has
// two TLS, their buffers, and of HTTP/2 the header of the request that asks for more.
//
// With a request of HTTP/1 it may have 20 KiB of a header in tiny lines, or the answer's; over HTTP/2
// the headers of maxStreams requests and their answers, and windows (TestSecureMemory).
const (
	idleCost    = 256 << 10
	activeCost  = 832 << 10
	streamsCost = 2 << 20
)

// activity is whether requests of a connection are under way.
type activity struct {
	mu     sync.Mutex
	http1  bool
	greets bool  // net/http calls a connection of HTTP/2 active once before the first request
	paid   int64 // what is taken beside idleCost
	idle   bool  // no request is being read or answered, as net/http says
	serves int   // handlers, of which some may still end after that
	full   error // why requests are answered 503; then it is over
}

// state is called by net/http before it serves requests of a connection without any, and when it
// has served them.
func state(c net.Conn, now http.ConnState) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	s, ok := t.NetConn().(*terminated)
	switch {
	case !ok:
	case now == http.StateActive && s.greets:
		s.greets = false
	case now == http.StateActive:
		s.begins()
	case now == http.StateIdle:
		s.rests(0)
	}
}

// Read is that of the client's connection. HTTP/1 holds a whole header before it asks anybody.
func (s *terminated) Read(p []byte) (int, error) {
	n, err := s.webSession.Read(p)
	if n > 0 && s.http1 {
		s.begins()
	}
	return n, err
}

// begins waits until the session may cost what one with requests does.
func (s *terminated) begins() {
	s.activity.mu.Lock()
	defer s.activity.mu.Unlock()
	s.idle = false
	if s.paid > 0 || s.full != nil {
		return
	}
	timeout := time.NewTimer(enterTimeout)
	defer timeout.Stop()
	cost := int64(activeCost - idleCost)
	if !s.http1 {
		cost = streamsCost - idleCost
	}
	if err := s.c.n.s.web.pay(s.c, cost, timeout); err != nil {
		s.turn(err)
		return
	}
	s.paid = cost
}

// turn has requests answered 503, as few at a time as others of the chat. It ends the session where
// there are more, and 10 s later.
func (s *terminated) turn(err error) {
	s.full = err
	s.c.refuse(err)
	if s.c.ctx.Err() != nil {
		return
	}
	select {
	case s.c.n.turned <- struct{}{}:
		end := time.AfterFunc(turnedTimeout, func() { s.c.cancel(err) })
		s.c.n.all.Go(func() {
			<-s.c.ctx.Done()
			end.Stop()
			<-s.c.n.turned
		})
	default:
		s.c.cancel(err)
	}
}

// serving counts a handler, and reports why it has to answer 503.
func (s *terminated) serving() error {
	s.activity.mu.Lock()
	defer s.activity.mu.Unlock()
	s.serves++
	return s.full
}

// rests gives back what requests cost when none is left, after the end of so many handlers.
func (s *terminated) rests(ended int) {
	s.activity.mu.Lock()
	defer s.activity.mu.Unlock()
	s.serves -= ended
	s.idle = s.idle || ended == 0
	if s.paid > 0 && s.idle && s.serves == 0 {
		s.c.n.s.web.costs.give(s.paid, &s.c.n.web, &s.c.n.owner.web)
		s.paid = 0
	}
}

// over gives back what the session has, also for handlers that still end. It takes no more.
func (s *terminated) over() {
	s.activity.mu.Lock()
	if s.full == nil {
		s.full = errOver
	}
	s.activity.mu.Unlock()
	s.rests(0)
}
