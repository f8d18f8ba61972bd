package state

import (
	"time"

	"github.com/chatd/chatd/chat"
)

// Touch records that a chat was used at t; an earlier t and an unknown chat change nothing. Durable
// with the next commit or within about a second.
func (s *Store) Touch(id chat.ID, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.index.byID[id]
	if t = t.UTC().Round(0); r == nil || !t.After(r.UsedAt) {
		return
	}
	r.UsedAt = t
	s.dirty[r.UID] = true
	s.stirUp()
}

// MoveUsed applies move to the used_at of every chat: the clock was set. Durable as of Touch.
func (s *Store) MoveUsed(move func(used time.Time) time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range s.index.byUID {
		if t := move(r.UsedAt).UTC().Round(0); !t.Equal(r.UsedAt) {
			r.UsedAt = t
			s.dirty[uid] = true
			s.stirUp()
		}
	}
}
