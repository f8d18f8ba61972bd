package plan

// ProbeSpec are the parameters of shims.Probe.
type ProbeSpec struct {
	// Home is the chat's home.
	Home string
	// Hidden are paths that exist on the host and that the session must not see.
	Hidden []string
	// Abstract is the name, without the leading NUL, of an abstract unix socket that listens
	// outside.
	Abstract string
	// PID is a process outside, which the session must not see; 0 means that none is known.
	PID int
	// Locked are paths inside on whose originals a process outside holds a lock. Without
	// them Probe does not try what root does to a session that bubblewrap has made.
	Locked []string
}
