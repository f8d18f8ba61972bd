package egress

import "sync/atomic"

// budget is what all chats share: connections, or bytes. Nobody gets all of it.
type budget struct{ left atomic.Int64 }

// share is what one chat or one owner has of a budget.
type share struct{ held atomic.Int64 }

// ownerTimes is how many times what is left the chats of one owner may have together. A single
// owner gets three quarters so, and leaves a quarter to others, whose first gets three of that.
const ownerTimes = 3

// take takes n for a chat of an owner, and reports whether it did. A chat that has more than is
// left gets no more: the rest is for those that have less. give gives it back.
func (b *budget) take(n int64, chat, owner *share) bool {
	left := b.left.Add(-n)
	chats, owners := chat.held.Add(n)-n, owner.held.Add(n)-n
	if left >= chats && left*ownerTimes >= owners {
		return true
	}
	b.give(n, chat, owner)
	return false
}

func (b *budget) give(n int64, chat, owner *share) {
	b.left.Add(n)
	chat.held.Add(-n)
	owner.held.Add(-n)
}

// owner is what the chats of one owner have together.
type owner struct {
	slots, web share
	chats      int // of server.mu
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
	o.chats++
	return o
}

// leaveOwner forgets an owner without chats.
func (s *server) leaveOwner(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[name]; o != nil {
		if o.chats--; o.chats == 0 {
			delete(s.owners, name)
		}
	}
}
