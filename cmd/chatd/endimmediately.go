package main

import (
	"os"
	"os/signal"
	"syscall"
)

// endImmediately makes an interrupt end the program whatever it waits for: for a command that has
// nothing to put back.
func endImmediately() { signal.Reset(os.Interrupt, syscall.SIGTERM) }
