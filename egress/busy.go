package egress

import "time"

const (
	// maxTurned is how many connections of a chat are answered 503 at a time, which are not
	// counted: with TLS each takes at worst [streamsCost].
	maxTurned     = 4
	turnedTimeout = 10 * time.Second // of one answer, with the wait for it
)

// enterTimeout is how long a connection of HTTP waits for its part of the memory. Tests set it.
var enterTimeout = headerTimeout

// busy is why a connection of HTTP is answered 503.
type busy struct{ error }

// Unwrap returns the reason.
func (b busy) Unwrap() error { return b.error }
