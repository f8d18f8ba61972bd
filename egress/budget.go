package egress

import (
	"sync"
	"sync/atomic"
)

// budget is what all chats share: connections, or bytes. Nobody gets all of it.
type budget struct {
	mu    sync.Mutex
	left  int64
	first int64         // of what a chat holds: kept for each chat of an owner
	freed chan struct{} // closed at the next give; nil where nobody waits
}

// share is what one chat or one owner has of a budget.
type share struct {
	held   int64
	firsts int64 // of what an owner's chats hold
}

// ownerTimes is how many times what is left the chats of one owner may have together. A single
// owner gets three quarters so, and leaves a quarter to others, whose first gets three of that.
const ownerTimes = 3

// take takes n for a chat of an owner with this many chats, and reports whether it did. A chat that
// has more than is left gets no more: the rest is for those that have less. So is the first of each
// chat of the owner. give gives it back. Where it did not, the channel is closed when more is free.
func (b *budget) take(n int64, chat, owner *share, chats int64) (bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left - n
	kept := int64(0) // of ownerTimes*left-owner.held, from which each byte takes one more
	if chat.held+n > b.first {
		kept = max(0, chats*b.first-owner.firsts) * (ownerTimes + 1)
	}
	if left < chat.held || left*ownerTimes < owner.held+kept {
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		return false, b.freed
	}
	b.move(n, chat, owner)
	return true, nil
}

func (b *budget) give(n int64, chat, owner *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.move(-n, chat, owner)
	b.wakeAll()
}

func (b *budget) move(n int64, chat, owner *share) {
	owner.firsts -= min(chat.held, b.first)
	b.left, chat.held, owner.held = b.left-n, chat.held+n, owner.held+n
	owner.firsts += min(chat.held, b.first)
}

// wake has those that wait try again.
func (b *budget) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeAll()
}

func (b *budget) wakeAll() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// owner is what the chats of one owner have together.
type owner struct {
	slots, web, waiting share
	chats               atomic.Int64 // changes with server.mu
}

// ownerOf returns an owner for one more chat, which leaves it.
func (s *server) ownerOf(name string) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[name]
	if o == nil {
		o = &owner{}
		s.owners[name] = o
	}
	o.chats.Add(1)
	return o
}

// leaveOwner forgets an owner without chats. What was kept for the chat is for others of the owner.
func (s *server) leaveOwner(name string) {
	defer s.web.costs.wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[name]; o != nil {
		if o.chats.Add(-1) == 0 {
			delete(s.owners, name)
		}
	}
}
