package idle

import "time"

// Lasting has when each thing was first found in a state that ends it, and when last, by the
// monotonic clock. A thing ends if it is found so for a while: in that a clock that was set wrongly
// can be set right, and an operator may see it.
type Lasting[K comparable] map[K]Sighting

// Sighting is when a thing was found first and last.
type Sighting struct{ First, Last time.Time }

// Found records that key was found at now, and reports whether it was for graceOf(after).
func (l Lasting[K]) Found(key K, now time.Time, after time.Duration) bool {
	at, known := l[key]
	if !known {
		at.First = now
	}
	at.Last = now
	l[key] = at
	return now.Sub(at.First) >= graceOf(after)
}

// ForgetOthers forgets what was not found at now, and returns it.
func (l Lasting[K]) ForgetOthers(now time.Time) (gone []K) {
	for key, at := range l {
		if !at.Last.Equal(now) {
			delete(l, key)
			gone = append(gone, key)
		}
	}
	return gone
}

// graceOf is for how long what ends after a time is found so before it ends.
func graceOf(after time.Duration) time.Duration { return min(time.Hour, after/10) }
