//go:build unix

package main

import (
	"os"
	"syscall"
)

// forwardedNames are the signals that chatd run passes on.
func forwardedNames() map[string]os.Signal {
	return map[string]os.Signal{
		"INT": os.Interrupt, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
	}
}
