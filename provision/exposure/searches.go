package exposure

import (
	"maps"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// searchAge is how long the result of a search serves: a caller that asks all the time, or many
// callers simultaneously, cost the host one search in that time.
const searchAge = 2 * time.Second

// Searches keeps what grants matched in the last 2 seconds. It is safe for concurrent use. A grant
// that is being searched is waited for by those that ask for the same one.
type Searches struct {
	mu   sync.Mutex
	last map[chat.Grant]*search
}

// NewSearches returns an empty Searches.
func NewSearches() *Searches { return &Searches{last: map[chat.Grant]*search{}} }

type search struct {
	done  chan struct{}
	ended time.Time // of Searches.mu; zero while it lasts
	found *expansion
	err   error
}

// expand returns a recent result of expand, or a new one. A nil Searches keeps none.
func (s *Searches) expand(g chat.Grant, expand func(chat.Grant) (*expansion, error)) (*expansion, error) {
	if s == nil {
		return expand(g)
	}
	now, mine := s.of(g)
	if !mine {
		<-now.done
		return now.found, now.err
	}
	defer close(now.done)
	now.found, now.err = expand(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	now.ended = time.Now()
	return now.found, now.err
}

// of returns the search for g, and whether the caller has to do it.
func (s *Searches) of(g chat.Grant) (now *search, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.last, func(_ chat.Grant, old *search) bool {
		return !old.ended.IsZero() && time.Since(old.ended) > searchAge
	})
	if now := s.last[g]; now != nil {
		return now, false
	}
	s.last[g] = &search{done: make(chan struct{})}
	return s.last[g], true
}
