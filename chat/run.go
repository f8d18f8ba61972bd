package chat

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Bounds of a run.
const (
	DefaultTimeout = Duration(60 * time.Second)
	MaxTimeout     = Duration(time.Hour)
	MaxOutput      = 1 << 20 // bytes kept of each stream
	MaxStdin       = 1 << 20
	MaxArgs        = 128 << 10 // bytes of command, or of argv and env together
	MaxInput       = 1 << 20
)

// RunSpec is one command to run inside a chat, beside its terminal.
type RunSpec struct {
	// Command goes to sh -c; exactly one of Command and Argv is set.
	Command string   `json:"command,omitempty" doc:"A shell command, run by sh -c. Exactly one of command and argv."`
	Argv    []string `json:"argv,omitempty" doc:"A program and its arguments, run as they are."`
	// Cwd is a directory in the chat's view; empty means the home, relative means below it.
	Cwd string `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory in the chat's view; the home if empty."`
	// Env is added to the clean environment.
	Env   map[string]string `json:"env,omitempty" doc:"Variables added to the clean environment."`
	Stdin string            `json:"stdin,omitempty" doc:"What the command reads."`
	// Timeout ends the whole run; zero means [DefaultTimeout].
	Timeout Duration `json:"timeout,omitempty" doc:"After which the whole run is ended, as in 60s."`
}

// Validate reports the first field that cannot be meant, as [ErrInvalid].
func (r RunSpec) Validate() error {
	if (r.Command == "") == (len(r.Argv) == 0) {
		return fmt.Errorf("cannot run: want exactly one of command and argv: %w", ErrInvalid)
	}
	if len(r.Argv) > 0 && r.Argv[0] == "" {
		return fmt.Errorf("cannot run: argv[0] is empty: %w", ErrInvalid)
	}
	size := len(r.Command)
	for _, a := range r.Argv {
		size += len(a) + 1
	}
	for k, v := range r.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fmt.Errorf("cannot run: env name %s: want a name without = and NUL: %w", Quote(k), ErrInvalid)
		}
		if strings.IndexByte(v, 0) >= 0 {
			return fmt.Errorf("cannot run: env %s holds a NUL: %w", Quote(k), ErrInvalid)
		}
		size += len(k) + len(v) + 2
	}
	return r.validateSizes(size)
}

func (r RunSpec) validateSizes(size int) error {
	switch {
	case strings.IndexByte(r.Command+strings.Join(r.Argv, "")+r.Cwd, 0) >= 0:
		return fmt.Errorf("cannot run: command, argv or cwd holds a NUL: %w", ErrInvalid)
	case size > MaxArgs:
		return fmt.Errorf("cannot run: command, argv and env take %d bytes, want at most %d: %w", size, MaxArgs, ErrInvalid)
	case len(r.Stdin) > MaxStdin:
		return fmt.Errorf("cannot run: stdin has %d bytes, want at most %d: %w", len(r.Stdin), MaxStdin, ErrInvalid)
	case r.Timeout < 0 || r.Timeout > MaxTimeout:
		return fmt.Errorf("cannot run: timeout %s: want 0s to %s: %w", r.Timeout, MaxTimeout, ErrInvalid)
	}
	return nil
}

// Dir is the working directory below or beside home.
func (r RunSpec) Dir(home string) string {
	if path.IsAbs(r.Cwd) {
		return path.Clean(r.Cwd)
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
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	// Truncated: one of the streams had more than [MaxOutput]; its end was dropped.
	Truncated bool  `json:"truncated"`
	WallMS    int64 `json:"wall_ms"`
	CPUMS     int64 `json:"cpu_ms"`
	// MemoryPeak is in bytes; 0 where the host cannot tell.
	MemoryPeak uint64 `json:"memory_peak"`
}

// Input is what is typed into the terminal: text, or named keys, not both.
type Input struct {
	// Text is typed as it is, any bytes that JSON can carry.
	Text string `json:"text,omitempty" doc:"Typed as it is."`
	// Enter presses Enter after the text.
	Enter bool `json:"enter,omitempty" doc:"Press Enter after the text."`
	// Keys are names of tmux(1), as in "C-c", "Up", "F1".
	Keys []string `json:"keys,omitempty" maxItems:"64" doc:"Keys by name, as in C-c, Up, F1."`
}

// Validate reports what cannot be typed, as [ErrInvalid]. Key names are
// checked by package tmux, which knows them.
func (in Input) Validate() error {
	switch {
	case len(in.Keys) > 0 && (in.Text != "" || in.Enter):
		return fmt.Errorf("cannot type: want text or keys, not both: %w", ErrInvalid)
	case len(in.Keys) == 0 && in.Text == "" && !in.Enter:
		return fmt.Errorf("cannot type: no text, no enter, no keys: %w", ErrInvalid)
	case len(in.Text) > MaxInput:
		return fmt.Errorf("cannot type: %d bytes, want at most %d: %w", len(in.Text), MaxInput, ErrInvalid)
	case strings.IndexByte(in.Text, 0) >= 0:
		return fmt.Errorf("cannot type: text holds a NUL: %w", ErrInvalid)
	}
	return nil
}

// Screen is what the terminal shows now.
type Screen struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
	// Text is the visible lines, without trailing blank ones. It is what a chat
	// printed: escape it before it meets a terminal.
	Text string `json:"text"`
	// CursorRow and CursorCol count from 0.
	CursorRow int `json:"cursor_row"`
	CursorCol int `json:"cursor_col"`
}
