// Command chatd-shim runs as the chat: it confines a process before it becomes
// the chat's command, refuses commands that it stands in for, and probes the
// walls from inside. See package shims.
//
// # What it does not stop
//
// See package shims.
package main

import (
	"os"

	"github.com/chatd/chatd/shims"
)

func main() { os.Exit(shims.Main(os.Args)) }
