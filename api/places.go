package api

import (
	"sync"

	"github.com/chatd/chatd/chat"
)

// places bounds how much of one kind there is at once for each caller. Two bridges are two
// callers: what the one holds, which may be for an hour, the other does not miss. Who has no role
// has a place among all who have none: how many uids there are of those nobody chose.
type places struct {
	most  int
	mu    sync.Mutex
	taken map[chat.Caller]int
}

func newPlaces(most int) *places { return &places{most: most, taken: map[chat.Caller]int{}} }

// enter takes a place until leave is called; ok is false where none is free.
func (p *places) enter(c chat.Caller) (leave func(), ok bool) {
	who := chat.Caller{UID: c.UID, Role: c.Role}
	if c.Role == "" {
		who = chat.Caller{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[who] >= p.most {
		return func() {}, false
	}
	p.taken[who]++
	return func() { p.leave(who) }, true
}

func (p *places) leave(who chat.Caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[who]--; p.taken[who] == 0 {
		delete(p.taken, who)
	}
}
