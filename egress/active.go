package egress

import (
	"net/http"
	"sync"
	"time"
)

// What a connection whose TLS is ended here may cost at worst, in bytes. One without a request has
// two TLS, their buffers, and of HTTP/2 the header of the request that asks for more. One of plain
// HTTP has buffers, and with a request a header (maxHeader).
//
// With a request of HTTP/1 it may have 20 KiB of a header in tiny lines, or the answer's; over HTTP/2
// the headers of maxStreams requests and their answers, and windows (TestSecureMemory).
const (
	idleCost    = 256 << 10
	activeCost  = 832 << 10
	streamsCost = 2 << 20
	restingCost = 64 << 10
	plainCost   = 1 << 20
)

// activity is whether requests of a connection are under way.
type activity struct {
	turns  sync.Mutex
	http1  bool
	greets bool  // net/http calls a connection of HTTP/2 active once before the first request
	cost   int64 // of requests, beside what the connection costs without
	paid   bool  // cost, and a place of network.sessions
	idle   bool  // no request is being read or answered, as net/http says
	serves int   // handlers, of which some may still end after that
	full   error // why requests are answered 503; then it is over
}

// became is called by net/http before it serves requests of a connection without any, and when it
// has served them.
func (s *webSession) became(is http.ConnState) {
	switch {
	case is == http.StateActive && s.greets:
		s.greets = false
	case is == http.StateActive:
		s.begins()
	case is == http.StateIdle:
		s.rests(0)
	}
}

// enter waits until the session may cost what one without requests does, and returns what gives
// that back. Where it may not, requests are answered 503.
func (s *webSession) enter(cost int64) (leave func(), err error) {
	timeout := time.NewTimer(enterTimeout)
	defer timeout.Stop()
	w := s.c.n.s.web
	switch err := w.pay(s.c, cost, timeout); err.(type) {
	case nil:
		return func() { s.over(); w.costs.give(cost, &s.c.n.web, &s.c.n.owner.web) }, nil
	case busy:
		s.turn(err)
		return func() {}, nil
	default:
		return nil, err
	}
}

// begins waits until the session may cost what one with requests does.
func (s *webSession) begins() {
	s.turns.Lock()
	defer s.turns.Unlock()
	s.idle = false
	if s.paid || s.full != nil {
		return
	}
	if err := s.c.n.s.web.begin(s.c, s.cost); err != nil {
		s.turn(err)
		return
	}
	s.paid = true
}

// turn has requests answered 503, as few at a time as others of the chat. It ends the session where
// there are more, and 10 s later.
func (s *webSession) turn(err error) {
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
func (s *webSession) serving() error {
	s.turns.Lock()
	defer s.turns.Unlock()
	s.serves++
	return s.full
}

// rests gives back what requests cost when none is left, after the end of this many handlers.
func (s *webSession) rests(ended int) {
	s.turns.Lock()
	defer s.turns.Unlock()
	s.serves -= ended
	s.idle = s.idle || ended == 0
	if s.paid && s.idle && s.serves == 0 {
		s.c.n.s.web.end(s.c, s.cost)
		s.paid = false
	}
}

// over gives back what the session has, also for handlers that still end. It takes no more.
func (s *webSession) over() {
	s.turns.Lock()
	if s.full == nil {
		s.full = errOver
	}
	s.turns.Unlock()
	s.rests(0)
}
