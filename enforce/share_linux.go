package enforce

import (
	"sync"
	"time"
)

// What one session makes the keeper do takes one part in so many of a CPU, and shareBurst
// at once: the rest of it waits, and so do its own opens. Names wait longer than opens: the
// longer they do, the more of them are the same.
const (
	namesShare = 10
	opensShare = 2
	shareBurst = 50 * time.Millisecond
)

// share is what one session has taken of the keeper's time.
type share struct {
	divisor int
	mu      sync.Mutex
	owed    time.Duration
	at      time.Time
}

// spend adds what was taken until now.
func (s *share) spend(now time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(now)
	s.owed += took
}

func (s *share) settle(now time.Time) {
	if passed := now.Sub(s.at); passed > 0 {
		s.owed = max(0, s.owed-passed/time.Duration(s.divisor))
		s.at = now
	}
}

// wait is how long the session has to wait for more.
func (s *share) wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(now)
	return max(0, s.owed-shareBurst) * time.Duration(s.divisor)
}
