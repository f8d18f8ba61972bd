package quota

import (
	"sync"
	"time"
)

// Rate bounds how often something happens for each holder in a minute: a bucket of this many
// tokens, which fills evenly. A restart fills every bucket.
type Rate struct {
	perMinute float64
	now       func() time.Time
	mu        sync.Mutex
	buckets   map[string]bucket
}

// bucket is what is left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// NewRate returns a rate; 0 is not a limit.
func NewRate(perMinute uint64, now func() time.Time) *Rate {
	return &Rate{perMinute: float64(perMinute), now: now, buckets: map[string]bucket{}}
}

// Take counts one for the holder. If none is left it counts nothing, and after is the time until
// there is one again.
func (r *Rate) Take(holder string) (after time.Duration, ok bool) {
	if r.perMinute == 0 {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.dropFull(now)
	left := r.leftAt(holder, now)
	if left < 1 {
		r.buckets[holder] = bucket{left, now}
		return max(1, time.Duration((1-left)/r.perMinute*float64(time.Minute))), false
	}
	r.buckets[holder] = bucket{left - 1, now}
	return 0, true
}

// Used is how much of the last minute's bucket each holder has used.
func (r *Rate) Used() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := map[string]uint64{}
	for holder := range r.buckets {
		if n := uint64(r.perMinute - r.leftAt(holder, r.now())); n > 0 {
			used[holder] = n
		}
	}
	return used
}

func (r *Rate) leftAt(holder string, now time.Time) float64 {
	b, ok := r.buckets[holder]
	if !ok {
		return r.perMinute
	}
	// A clock that was set back fills nothing, and takes nothing.
	return min(r.perMinute, b.left+max(0, now.Sub(b.at).Minutes())*r.perMinute)
}

// dropFull removes full buckets, so that names do not pile up.
func (r *Rate) dropFull(now time.Time) {
	for holder := range r.buckets {
		if r.leftAt(holder, now) >= r.perMinute {
			delete(r.buckets, holder)
		}
	}
}
