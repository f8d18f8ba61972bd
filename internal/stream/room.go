package stream

import (
	"fmt"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Room bounds the bytes of streams that a process stores: in all, and for each owner.
type Room struct {
	all, each int64

	mu   sync.Mutex
	held int64
	by   map[string]int64
}

// NewRoom returns a Room for all bytes in total, and each for one owner.
func NewRoom(all, each int64) *Room {
	return &Room{all: all, each: each, by: map[string]int64{}}
}

// Reservation is a part of a [Room]. Any number of [Capture]s share one.
type Reservation struct {
	room       *Room
	who        string
	held, used int64
}

// Enter takes a place for the owner who. It holds least bytes from now on and may grow. Without
// room for them the error is [chat.ErrBusy].
func (r *Room) Enter(who string, least int64) (*Reservation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fits(who, least) {
		return nil, fmt.Errorf("cannot keep what it prints: %d bytes of output are kept for runs of "+
			"%s and %d in all, want at most %d and %d: %w",
			r.by[who], chat.Quote(who), r.held, r.each, r.all, chat.ErrBusy)
	}
	r.take(who, least)
	return &Reservation{room: r, who: who, held: least}, nil
}

// fits and take are called with the lock.
func (r *Room) fits(who string, n int64) bool {
	return r.held+n <= r.all && r.by[who]+n <= r.each
}

func (r *Room) take(who string, n int64) {
	r.held += n
	if r.by[who] += n; r.by[who] == 0 {
		delete(r.by, who)
	}
}

// grow counts n more bytes, or as many as fit, and returns how many. A nil place has no bound.
func (p *Reservation) grow(n int64) int64 {
	if p == nil {
		return n
	}
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	more := max(0, min(p.used+n-p.held, r.all-r.held, r.each-r.by[p.who]))
	n = min(n, p.held+more-p.used)
	r.take(p.who, more)
	p.used, p.held = p.used+n, p.held+more
	return n
}

// Leave gives the place back. It is idempotent.
func (p *Reservation) Leave() {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	p.room.take(p.who, -p.held)
	p.held, p.used = 0, 0
}
