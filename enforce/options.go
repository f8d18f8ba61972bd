package enforce

import "io"

// Options are the flags of chatd-enforce.
type Options struct {
	// Dir holds the socket and the state of the sessions.
	Dir string
	// Worker runs the worker; without it the holder runs.
	Worker bool
	// Heir makes it the holder in the place of one that ended, whose descriptors it has.
	Heir bool
	// IdleEnd ends the enforcer after [idleTime] without a session or an order. A systemd unit runs
	// without it; an enforcer that chatd started itself would otherwise never end.
	IdleEnd bool
	// Errs is where errors go that no answer can carry.
	Errs io.Writer
}
