package plan

import (
	"strconv"

	"github.com/chatd/chatd/chat"
)

// ProgramName is the name by which chatd-shim has its own modes; called by any other
// name it is the wrapper of that command (package wrapper).
const ProgramName = "chatd-shim"

// PTYArgv runs argv in a terminal of the session's devpts, which a process of the chat makes
// behind every wall. Its standard input is frames, see [stream.InputFrames].
func PTYArgv(size chat.TTY, argv []string) []string {
	return append([]string{InsideShim, "pty", strconv.Itoa(size.Rows), strconv.Itoa(size.Cols),
		"--"}, argv...)
}
