package chat

import (
	"fmt"
	"path"
	"strings"
)

// Bounds on the paths that a command names: their number, and the bytes of each.
const (
	MaxNamed      = 10_000
	MaxNamedPath  = 1 << 16
	MaxNamedBytes = 1 << 20
)

// NamedPath is a path that a command names: absolute and not folded. The front finds it, and
// chatd-root asks the file rules about it.
type NamedPath struct {
	Text string `json:"text"`
	// Glob means that Text has wildcards, escaped as package doublestar requires.
	Glob bool `json:"glob,omitempty"`
}

// CheckNamed refuses invalid named paths, as [ErrInvalid].
func CheckNamed(named []NamedPath) error {
	if len(named) > MaxNamed {
		return Invalid("cannot check the command: want at most %d paths, got %d", MaxNamed, len(named))
	}
	size := 0
	for _, n := range named {
		if len(n.Text) > MaxNamedPath || strings.IndexByte(n.Text, 0) >= 0 || !path.IsAbs(n.Text) {
			return Invalid("cannot check the command: path %s: "+
				"want an absolute path of at most %d bytes without NUL", Quote(n.Text), MaxNamedPath)
		}
		size += len(n.Text)
	}
	if size > MaxNamedBytes {
		return Invalid("cannot check the command: want paths of at most %d bytes in all, got %d",
			MaxNamedBytes, size)
	}
	return nil
}

// Terms is the data by which the front checks a chat's commands.
type Terms struct {
	// Home is absolute.
	Home string `json:"home"`
	// ExecOff means that the profile switches [ToolExec] off, and chatd-root refuses every run.
	ExecOff bool  `json:"exec_off,omitempty"`
	Guard   Guard `json:"guard"`
	// Places are those of Guard.
	Places GuardPlaces `json:"places"`
	// What file tools may use outside the home and the temporary directories.
	ReadOutside bool     `json:"read_outside,omitempty"`
	AllowRead   []string `json:"allow_read,omitempty"`
	AllowWrite  []string `json:"allow_write,omitempty"`
}

// RunDenial is the error of a command that a guard or file rules refuse, an [ErrDenied] of one
// line.
type RunDenial struct {
	// Rule is the name of a rule, or the rule or custom pattern itself, and Place its file:line.
	Rule  string `json:"rule"`
	Place string `json:"place"`
	// Message is the text for the agent, Command the simple command or path that is denied.
	Message string `json:"message"`
	Command string `json:"command"`
	// Reason is why it is denied, Instead what to do.
	Reason  string `json:"reason"`
	Instead string `json:"instead"`
	// Terse omits Rule and Command from Error.
	Terse bool `json:"vague,omitempty"`
}

// Error says why, and what to do instead.
func (d *RunDenial) Error() string {
	if d.Terse {
		return fmt.Sprintf("cannot run: %s; %s: %v", d.Message, d.Instead, ErrDenied)
	}
	return fmt.Sprintf("cannot run: %s: rule %s in %s: %s; %s: %v",
		d.Message, d.Rule, Quote(d.Command), d.Reason, d.Instead, ErrDenied)
}

// Unwrap is [ErrDenied].
func (d *RunDenial) Unwrap() error { return ErrDenied }

// VisibleRule is the rule that the caller may know; empty if the policy hides it.
func (d *RunDenial) VisibleRule() string {
	if d.Terse {
		return ""
	}
	return d.Rule
}

// RefusedRun is a run that the front refuses, for the audit log.
type RefusedRun struct {
	Argv   []string  `json:"argv"`
	Denial RunDenial `json:"denial"`
}
