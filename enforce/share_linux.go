package enforce

import (
	"sync"
	"time"
)

// Each session gets a share of the enforcer's CPU time: a tenth of a CPU for name events and half
// a CPU for opens, with bursts of shareBurst. Work beyond the share waits, and so do the session's
// own opens. Name events wait longer, because more of them are then duplicates.
const (
	namesShare = 10
	opensShare = 2
	shareBurst = 50 * time.Millisecond
)

// share is the CPU time that one session has used. spend adds to it, and it decays with time.
type share struct {
	divisor int
	mu      sync.Mutex
	owed    time.Duration
	at      time.Time
}

// spend adds CPU time that was used until now.
func (s *share) spend(now time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decay(now)
	s.owed += took
}

func (s *share) decay(now time.Time) {
	if passed := now.Sub(s.at); passed > 0 {
		s.owed = max(0, s.owed-passed/time.Duration(s.divisor))
		s.at = now
	}
}

// wait returns how long the session must wait for its next share.
func (s *share) wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decay(now)
	return max(0, s.owed-shareBurst) * time.Duration(s.divisor)
}
