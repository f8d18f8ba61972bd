package enforce

import "io"

// Options are the flags of chatd-enforce.
type Options struct {
	// Dir is where its socket is, and what it notes.
	Dir string
	// Worker makes it the worker that a holder started.
	Worker bool
	// IdleEnd lets it end when it keeps no session and nobody has asked for a while. A unit of
	// systemd's goes on; one that chatd started itself would outlive it for ever.
	IdleEnd bool
	// Errs hears what nobody else can be told.
	Errs io.Writer
}
