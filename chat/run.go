package chat

import (
	"cmp"
	"path"
	"strings"
	"time"
)

// Bounds of a run.
const (
	DefaultTimeout = Duration(60 * time.Second)
	// MaxTimeout is a profile's default timeout_max; LongestTimeout is the longest that a profile
	// may set.
	MaxTimeout     = Duration(time.Hour)
	LongestTimeout = Duration(24 * time.Hour)
	// DefaultGrace is the time between SIGTERM and SIGKILL when a run is ended.
	DefaultGrace = Duration(2 * time.Second)
	MaxGrace     = Duration(30 * time.Second)
	MaxStdin     = 1 << 20
	MaxArgs      = 128 << 10 // bytes of command, or of argv and env together
	MaxInput     = 1 << 20
)

// RunSpec is one command to run inside a chat, beside its terminal.
type RunSpec struct {
	// Command goes to sh -c; exactly one of Command and Argv is set.
	Command string   `json:"command,omitempty" doc:"A shell command, run by sh -c. Exactly one of command and argv."`
	Argv    []string `json:"argv,omitempty" doc:"A program and its arguments, run as they are."`
	// Cwd is a directory in the chat's view; empty means the home, relative and ~/ mean below it.
	Cwd string `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory in the chat's view; the home if empty."`
	// Env is added to the clean environment.
	Env   map[string]string `json:"env,omitempty" doc:"Variables added to the clean environment."`
	Stdin string            `json:"stdin,omitempty" doc:"What the command reads."`
	// OpenStdin leaves standard input open for later input; see runs/{run}/stdin.
	OpenStdin bool `json:"open_stdin,omitempty" doc:"Standard input comes later, by runs/{run}/stdin."`
	// Background answers immediately with a [Run], which continues without its caller and across a
	// restart of chatd.
	Background bool `json:"background,omitempty" doc:"Answer with the run's id immediately; it goes on without its caller."`
	// TTY gives the command a terminal of its own, of this size.
	TTY *TTY `json:"tty,omitempty" doc:"Give the command a terminal of this size."`
	// Timeout ends the whole run; zero means [DefaultTimeout], or the profile's maximum if
	// that is less. More than the maximum is an error.
	Timeout Duration `json:"timeout,omitempty" doc:"After which the whole run is ended, as in 60s; at most timeout_max of the profile."`
	// Grace is how long it may take to end after SIGTERM, after its timeout or when its caller is
	// gone, before SIGKILL; zero means [DefaultGrace].
	Grace Duration `json:"grace,omitempty" doc:"Between SIGTERM and SIGKILL when the run is ended; 2s if it is left out."`
	// OutputMax is how many bytes of each stream are kept, half from its head and half from its
	// tail; zero means [DefaultOutputMax]. It does not apply to streamed runs.
	OutputMax int64 `json:"output_max,omitempty" minimum:"0" maximum:"4194304" doc:"Bytes kept of each stream, head and tail: 1024 to 4194304; 0 means 1048576. Not where the answer is a stream, which has all of it."`
	// Started, if set, is called with the run's id once the command has started.
	Started func(run string) `json:"-"`
	// Named are the paths that the command names, as the front found them. They cross the broker
	// and no other boundary.
	Named []NamedPath `json:"-"`
}

// Validate reports the first invalid field, as [ErrInvalid].
func (r RunSpec) Validate() error {
	size := len(r.Command)
	for _, a := range r.Argv {
		size += len(a) + 1
	}
	for k, v := range r.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return Invalid("cannot run: env name %s: want a name without = and NUL", Quote(k))
		}
		if strings.IndexByte(v, 0) >= 0 {
			return Invalid("cannot run: env %s holds a NUL", Quote(k))
		}
		size += len(k) + len(v) + 2
	}
	switch {
	case (r.Command == "") == (len(r.Argv) == 0):
		return Invalid("cannot run: want exactly one of command and argv")
	case len(r.Argv) > 0 && r.Argv[0] == "":
		return Invalid("cannot run: argv[0] is empty")
	case r.OpenStdin && r.Stdin != "":
		return Invalid("cannot run: want stdin or open_stdin, not both")
	case r.TTY != nil && r.Stdin != "":
		return Invalid("cannot run: want stdin or tty, not both; type later, by open_stdin")
	case r.TTY != nil && !r.TTY.isSize(MaxTTY):
		return r.TTY.validate()
	case strings.IndexByte(r.Command+strings.Join(r.Argv, "")+r.Cwd, 0) >= 0:
		return Invalid("cannot run: command, argv or cwd holds a NUL")
	case size > MaxArgs:
		return Invalid("cannot run: command, argv and env take %d bytes, want at most %d", size, MaxArgs)
	case len(r.Stdin) > MaxStdin:
		return Invalid("cannot run: stdin has %d bytes, want at most %d", len(r.Stdin), MaxStdin)
	case r.Timeout < 0 || r.Timeout > LongestTimeout:
		return Invalid("cannot run: timeout %s: want 0s to %s", r.Timeout, LongestTimeout)
	case r.Grace < 0 || r.Grace > MaxGrace:
		return Invalid("cannot run: grace %s: want 0s to %s", r.Grace, MaxGrace)
	}
	return cmp.Or(CheckNamed(r.Named), CheckOutputMax(r.OutputMax))
}

// CommandLine is the argv for execve(2). A shell command is one argument of sh.
func (r RunSpec) CommandLine() []string {
	if r.Command != "" {
		return []string{"/bin/sh", "-c", r.Command}
	}
	return r.Argv
}

// StdinStaysOpen reports whether input may be sent later. A terminal's standard input stays open
// for its size.
func (r RunSpec) StdinStaysOpen() bool { return r.OpenStdin || r.TTY != nil }

// Dir is the run's absolute working directory: ~ at its head is the home.
func (r RunSpec) Dir(home string) string {
	if path.IsAbs(r.Cwd) {
		return path.Clean(r.Cwd)
	}
	if first, rest, _ := strings.Cut(r.Cwd, "/"); first == "~" {
		return path.Join(home, rest)
	}
	return path.Join(home, r.Cwd)
}

// RunResult is how a run ended.
type RunResult struct {
	// Exit is the exit code; -1 when a signal ended the command.
	Exit int `json:"exit"`
	// Signal is the name of the signal that ended it, as in "SIGKILL".
	Signal    string `json:"signal,omitempty"`
	TimedOut  bool   `json:"timed_out"`
	OOMKilled bool   `json:"oom_killed"`
	// EndedBy is the cause that ended the run before its command exited; empty if none did.
	EndedBy EndedBy `json:"ended_by,omitempty" enum:"memory,timeout,request,sleep,reap,session,stop" doc:"What ended the run before its command did by itself."`
	// Why tells people what ended the run and which limits it reached.
	Why []string `json:"why,omitempty" doc:"Sentences that say what ended the run and which limits it met."`
	// Denied is what file rules and egress refused the chat during the run, MaxDenied at most.
	Denied []Denied `json:"denied,omitempty" doc:"What file rules and egress refused the chat meanwhile."`
	// PidsRefused counts new processes refused to the chat for pids_max during the run.
	PidsRefused uint64 `json:"pids_refused,omitempty" doc:"New processes that the chat was refused for pids_max meanwhile."`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	// StdoutBytes and StderrBytes are how many bytes the command printed.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutReplaced and StderrReplaced are how many bytes of Stdout and Stderr were no UTF-8 and
	// are shown as U+FFFD. A streamed or background run has the bytes as they are, in base64.
	StdoutReplaced int64 `json:"stdout_replaced,omitempty" doc:"Bytes of stdout that were no UTF-8"`
	StderrReplaced int64 `json:"stderr_replaced,omitempty" doc:"The same of stderr."`
	// Truncated means that a stream exceeded [RunSpec].OutputMax; a line in its middle states how
	// much was left out.
	Truncated bool  `json:"truncated"`
	WallMS    int64 `json:"wall_ms"`
	CPUMS     int64 `json:"cpu_ms"`
	// MemoryPeak is in bytes; 0 if the host does not report it.
	MemoryPeak uint64 `json:"memory_peak"`
}

// Bounds of [RunSpec].OutputMax, in bytes of each stream.
const (
	// DefaultOutputMax replaces zero.
	DefaultOutputMax = 1 << 20
	// MinOutputMax leaves room for a line of the head, one of the tail, and the line between them.
	MinOutputMax = 1 << 10
	// MaxOutputMax keeps an answer with two such streams, each byte in JSON's longest escape,
	// within what a client reads.
	MaxOutputMax = 4 << 20
	// MaxRunsOutput is how much output the current runs of one chat may keep in total: both streams
	// of [MaxRuns] runs with the default.
	MaxRunsOutput = MaxRuns * 2 * DefaultOutputMax
)

// CheckOutputMax reports an invalid OutputMax, as [ErrInvalid].
func CheckOutputMax(n int64) error {
	if n == 0 || n >= MinOutputMax && n <= MaxOutputMax {
		return nil
	}
	return Invalid("cannot run: output_max %d: want %d to %d bytes, or 0 for %d", n, MinOutputMax,
		MaxOutputMax, DefaultOutputMax)
}

// CheckStreamed refuses, as [ErrInvalid], the option of a run that does not apply to streamed
// output: its caller expects a bounded answer.
func (r RunSpec) CheckStreamed() error {
	if r.OutputMax == 0 {
		return nil
	}
	return Invalid("cannot run: output_max %d: streamed output is passed on whole, and none of it is kept; want output_max 0, or an answer in one piece, or background",
		r.OutputMax)
}

// CheckTimeoutMax reports an invalid timeout_max of a profile.
func CheckTimeoutMax(d Duration) error {
	if d.D() < time.Second || d > LongestTimeout {
		return Invalid("%s: want 1s to %s", d, LongestTimeout)
	}
	return nil
}

// shortestSleepAfter is more than a caller takes between two messages that belong together.
const shortestSleepAfter = Duration(5 * time.Second)

// CheckSleepAfter reports an invalid sleep_after of a profile.
func CheckSleepAfter(d Duration) error {
	if d != 0 && d < shortestSleepAfter {
		return Invalid("%s: want 0, for never, or at least %s", d, shortestSleepAfter)
	}
	return nil
}

// RunTimeout is the timeout of a run. A wish of zero means usual, or the maximum if that is less. A
// wish above the maximum is [ErrInvalid] and names it. If the timeout were shortened silently, a
// run that ends early would look as if its command hung.
func (p Profile) RunTimeout(wish, usual Duration) (time.Duration, error) {
	limit := cmp.Or(p.TimeoutMax, MaxTimeout)
	if wish > limit {
		return 0, Invalid("cannot run: timeout %s: want at most %s, which is timeout_max of profile %s", wish,
			limit, p.Name)
	}
	return cmp.Or(wish, min(usual, limit)).D(), nil
}
