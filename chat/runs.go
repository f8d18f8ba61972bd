package chat

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of the runs of one chat.
const (
	// MaxRuns is how many runs may be in progress simultaneously, background runs included.
	MaxRuns = 64
	// RunRetention is how long a background run is kept once it has ended.
	RunRetention = 30 * time.Minute
	// MaxRetainedOutput is how much output the ended runs of one chat keep in total; the oldest are
	// dropped first.
	MaxRetainedOutput = 16 << 20
	// MaxReadRun is how much of each stream one read of a run returns.
	MaxReadRun = 64 << 10
	// MaxTTY is the most rows or columns of a terminal.
	MaxTTY = 4096
)

// RunState is a stage in the life of a run.
type RunState string

// The states of a run.
const (
	RunRunning RunState = "running"
	RunEnded   RunState = "ended"
	// RunLost: it has ended, and its result is unknown.
	RunLost RunState = "lost"
)

// Run is one run of a chat, in progress or kept.
type Run struct {
	// ID is random and never used again. It means nothing outside its chat.
	ID         string   `json:"id"`
	State      RunState `json:"state"`
	Background bool     `json:"background"`
	// Command is the command as it was given, quoted and cut: it is the caller's text.
	Command   string     `json:"command"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Timeout   Duration   `json:"timeout"`
	TTY       *TTY       `json:"tty,omitempty"`
	// OutputMax is how many bytes are kept of each stream; zero if the output is streamed and not
	// kept.
	OutputMax int64 `json:"output_max,omitempty"`
	// Schedule is the id of the schedule that started it, if any.
	Schedule string `json:"schedule,omitempty"`
	// Result is how a run ended, or, while it runs, its output so far. In a list it has no output;
	// a foreground run never has output here.
	Result *RunResult `json:"result,omitempty"`
}

// Runs are the runs of a chat, oldest first.
type Runs struct {
	Runs []Run `json:"runs"`
}

// TTY is the size of a terminal.
type TTY struct {
	Rows int `json:"rows" minimum:"1" maximum:"4096"`
	Cols int `json:"cols" minimum:"1" maximum:"4096"`
}

func (t TTY) validate() error {
	if !t.isSize(MaxTTY) {
		return Invalid("cannot run: tty of %d rows and %d cols: want 1 to %d of each", t.Rows, t.Cols, MaxTTY)
	}
	return nil
}

func (t TTY) isSize(most int) bool {
	return t.Rows >= 1 && t.Rows <= most && t.Cols >= 1 && t.Cols <= most
}

// RunSignals are the signals that a run may be sent, without SIG.
var RunSignals = []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "KILL"}

// RunSignal is a signal for every process of a run.
type RunSignal struct {
	// Signal is one of [RunSignals], with or without SIG.
	Signal string `json:"signal" doc:"INT, TERM, HUP, QUIT, USR1, USR2, KILL, or WINCH with tty."`
	// TTY is the new size of a run's terminal; with WINCH only, which needs it.
	TTY *TTY `json:"tty,omitempty" doc:"The new size of the run's terminal, with WINCH."`
}

// Validate reports a signal that cannot be sent, as [ErrInvalid].
func (s RunSignal) Validate() error {
	known := false
	for _, name := range RunSignals {
		known = known || name == s.Name()
	}
	switch {
	case !known:
		return Invalid("cannot send signal %s: want one of %s", Quote(s.Signal),
			strings.Join(RunSignals, ", "))
	case (s.Name() == "WINCH") != (s.TTY != nil):
		return Invalid("cannot send signal %s: want tty with WINCH, and with no other", Quote(s.Signal))
	case s.TTY != nil:
		return s.TTY.validate()
	}
	return nil
}

// Name is the signal without SIG.
func (s RunSignal) Name() string { return strings.TrimPrefix(s.Signal, "SIG") }

// RunCursor is a position in both streams of a run, in bytes. The zero value is the beginning.
type RunCursor struct{ Stdout, Stderr int64 }

// String is the cursor as it crosses the API, "STDOUT-STDERR".
func (c RunCursor) String() string { return fmt.Sprintf("%d-%d", c.Stdout, c.Stderr) }

// ParseRunCursor reads what [RunCursor.String] made; "" is the beginning.
func ParseRunCursor(s string) (RunCursor, error) {
	if s == "" {
		return RunCursor{}, nil
	}
	a, b, _ := strings.Cut(s, "-")
	out, err := strconv.ParseUint(a, 10, 63)
	if err == nil {
		var errs uint64
		errs, err = strconv.ParseUint(b, 10, 63)
		if err == nil {
			return RunCursor{int64(out), int64(errs)}, nil
		}
	}
	return RunCursor{}, Invalid("cannot use cursor %s: want what an answer had", Quote(s))
}

// RunOutput is a piece of what a run printed.
type RunOutput struct {
	// Frames has at most one frame of each stream.
	Frames []Frame `json:"frames"`
	// Missing counts bytes between the requested cursor and the frames that are no longer kept.
	Missing int64 `json:"missing,omitempty"`
	// Cursor is the cursor of the next read.
	Cursor string   `json:"cursor"`
	State  RunState `json:"state"`
}

// NoChat is the error about a chat that does not exist or has another owner: a caller cannot tell
// the two apart.
func NoChat(id ID) error {
	return fmt.Errorf("cannot find chat %s: %w", Quote(string(id)), ErrNotFound)
}

// NoRun is the error about a run that is not in the chat, whether or not another chat has it.
func NoRun(id ID, run string) error {
	return fmt.Errorf("cannot find run %s of chat %s: %w", Quote(run), id, ErrNotFound)
}

// MaxProcesses is how many processes of a chat are listed.
const MaxProcesses = 1024

// Process is one process in a chat's session. Everything but the name is the kernel's own count.
type Process struct {
	// PID is the process's number as the chat sees it.
	PID int `json:"pid"`
	// Name is the command's name as ps(1) shows it. The process chooses it: up to 15 bytes of any
	// kind.
	Name  string       `json:"name"`
	State ProcessState `json:"state"`
	// MemoryBytes is the resident memory. Shared pages are counted for each process.
	MemoryBytes uint64 `json:"memory_bytes"`
	// CPU is the CPU time that its threads have taken.
	CPU Duration `json:"cpu"`
	// Run is the run that it belongs to; empty means the terminal's session. A file tool has a run
	// of its own, which is not among [Runs].
	Run string `json:"run,omitempty"`
}

// ProcessState is the scheduling state of a process.
type ProcessState string

// The states of a process.
const (
	ProcessRunning  ProcessState = "running"
	ProcessSleeping ProcessState = "sleeping"
	// ProcessBlocked: it waits in the kernel and cannot be interrupted by signals.
	ProcessBlocked ProcessState = "blocked"
	ProcessStopped ProcessState = "stopped"
	// ProcessEnded: it has exited, and its parent has not waited for it (a zombie).
	ProcessEnded ProcessState = "ended"
)

// Processes are the processes of a chat, by number.
type Processes struct {
	Processes []Process `json:"processes"`
	// LeftOut counts the processes beyond [MaxProcesses].
	LeftOut int `json:"left_out,omitempty"`
}
