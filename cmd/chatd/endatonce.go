package main

import (
	"os"
	"os/signal"
	"syscall"
)

// endAtOnce makes an interrupt end the program whatever it waits for: for a command that has
// nothing to put back.
func endAtOnce() { signal.Reset(os.Interrupt, syscall.SIGTERM) }
