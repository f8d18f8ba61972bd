package provision

import "time"

// lasting has when each thing was first found in a state that ends it, and when last, by the
// monotonic clock. A thing ends if it is found so for a while: in that a clock that was set wrongly
// can be set right, and an operator may see it.
type lasting[K comparable] map[K]sighting

type sighting struct{ first, last time.Time }

// found records that key was found at now, and reports whether it was for graceOf(after).
func (l lasting[K]) found(key K, now time.Time, after time.Duration) bool {
	at, known := l[key]
	if !known {
		at.first = now
	}
	at.last = now
	l[key] = at
	return now.Sub(at.first) >= graceOf(after)
}

// forgetOthers forgets what was not found at now, and returns it.
func (l lasting[K]) forgetOthers(now time.Time) (gone []K) {
	for key, at := range l {
		if !at.last.Equal(now) {
			delete(l, key)
			gone = append(gone, key)
		}
	}
	return gone
}

// graceOf is for how long what ends after a time is found so before it ends.
func graceOf(after time.Duration) time.Duration { return min(time.Hour, after/10) }
