package shims

import "github.com/chatd/chatd/chat"

// ProbeSpec says what [Probe] shall try, beyond what it tries anyway.
type ProbeSpec struct {
	// Network is the kind the session should have.
	Network chat.Network
	// Home is the chat's home.
	Home string
	// Hidden are paths that exist on the host and must not be seen.
	Hidden []string
	// Abstract is the name, without the leading NUL, of an abstract unix socket
	// that listens outside. Under a shared network nothing else can show that it
	// is out of reach.
	Abstract string
	// PID is a process outside, that must not be there; 0 means none is known.
	PID int
	// Locked are paths inside on whose originals somebody outside holds a lock. Without
	// them nothing is tried that root does to a session that bubblewrap has made.
	Locked []string
}
