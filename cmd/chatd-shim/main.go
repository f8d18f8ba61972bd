// Command chatd-shim runs as the chat. It confines a process before it becomes the chat's command,
// refuses commands that it stands in for, and probes the walls from inside. See package shims;
// supervise, termlog and wrapper have other modes. Its mode scan runs as no chat: see package scan.
//
// # What it does not stop
//
// See package shims.
package main

import (
	"os"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/shims/scan"
	"github.com/chatd/chatd/shims/supervise"
	_ "github.com/chatd/chatd/shims/termlog" // the mode log, which never comes to main
	"github.com/chatd/chatd/shims/wrapper"
)

func main() {
	if len(os.Args) == 2 && os.Args[0] == plan.ProgramName {
		switch os.Args[1] {
		case "mind":
			os.Exit(supervise.Main())
		case "scan":
			os.Exit(scan.Main())
		}
	}
	if name := shims.Called(os.Args); name != plan.ProgramName {
		os.Exit(wrapper.Main(name, os.Args))
	}
	os.Exit(shims.Main(os.Args))
}
