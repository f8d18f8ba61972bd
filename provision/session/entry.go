package session

import (
	"errors"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

// ErrNotConfined is the error of a command that never started: chatd-shim could not apply the
// walls, or could not start the program. The failure is chatd's, not the command's.
var ErrNotConfined = errors.New("not confined")

// NotConfinedError is [ErrNotConfined] with the message of chatd-shim, which names what failed.
type NotConfinedError struct{ Message string }

// Error is chatd-shim's message.
func (e *NotConfinedError) Error() string { return e.Message }

// Unwrap is for package errors.
func (e *NotConfinedError) Unwrap() error { return ErrNotConfined }

// Entry is one command on its way into a session.
type Entry struct {
	Run   string   // the name of the command and of its leaf
	Argv  []string // as the session sees the program
	Env   []string // KEY=value, besides the session's own
	Dir   string   // where it starts
	Stdin []byte
	// View is what the session sees; Limits are those of setrlimit(2).
	View   plan.View
	Limits chat.ProcessLimits
	// OpenStdin leaves stdin open. Started is called once nsenter runs, with its pid and the end
	// of stdin to write to, which is nil unless OpenStdin is set. It may be nil.
	OpenStdin bool
	Started   func(nsenter int, stdin *os.File)
	// Grace is the time between SIGTERM and SIGKILL; zero kills the command immediately.
	Grace time.Duration
	// Begun is given the read ends of the streams, with the run's name, once the command is behind
	// its walls. nil keeps at most 1 MiB of each here.
	Begun func(run string, stdout, stderr *os.File)
}

// maxOwn bounds the kept output of each stream of chatd's own programs, in bytes.
const maxOwn = 1 << 20

// CommandResult is how a command in a session ended.
type CommandResult struct {
	Exit   int    // -1 if Signal is set
	Signal string // the signal's name, as kill(1) has it
	// Stdout and Stderr are the kept output; see [Entry].Begun.
	Stdout   []byte
	Stderr   string
	Usage    chat.Usage
	TimedOut bool // its context's deadline ended it
	Wall     time.Duration
	// Late: some of its killed processes still live; chatd waits for them in the background.
	Late bool
	Left int // the processes that the command left running, which were ended
}
