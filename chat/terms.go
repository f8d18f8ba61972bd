package chat

import (
	"fmt"
	"path"
	"strings"
)

// Bounds of the paths that a command names, in all and of each in bytes.
const (
	MaxNamed      = 10_000
	MaxNamedPath  = 1 << 16
	MaxNamedBytes = 1 << 20
)

// NamedPath is a path that a command names: absolute and not folded. The front finds it, and
// chatd-root asks the file rules about it.
type NamedPath struct {
	Text string `json:"text"`
	// Glob: Text has wildcards, and is escaped as package doublestar wants it.
	Glob bool `json:"glob,omitempty"`
}

// CheckNamed refuses paths that no command names, as [ErrInvalid].
func CheckNamed(named []NamedPath) error {
	if len(named) > MaxNamed {
		return fmt.Errorf("cannot judge the command: want at most %d paths, got %d: %w",
			MaxNamed, len(named), ErrInvalid)
	}
	size := 0
	for _, n := range named {
		if len(n.Text) > MaxNamedPath || strings.IndexByte(n.Text, 0) >= 0 || !path.IsAbs(n.Text) {
			return fmt.Errorf("cannot judge the command: path %s: "+
				"want an absolute path of at most %d bytes without NUL: %w", Quote(n.Text), MaxNamedPath, ErrInvalid)
		}
		size += len(n.Text)
	}
	if size > MaxNamedBytes {
		return fmt.Errorf("cannot judge the command: want paths of at most %d bytes in all, got %d: %w",
			MaxNamedBytes, size, ErrInvalid)
	}
	return nil
}

// Terms are what the front judges the commands of a chat by.
type Terms struct {
	// Home is absolute.
	Home string `json:"home"`
	// ExecOff: the profile has [ToolExec] switched off, and chatd-root refuses every run.
	ExecOff bool  `json:"exec_off,omitempty"`
	Guard   Guard `json:"guard"`
	// DenyPlaces and AllowPlaces are the places of the guard's custom patterns.
	DenyPlaces  []string `json:"deny_places,omitempty"`
	AllowPlaces []string `json:"allow_places,omitempty"`
}

// NewTerms are terms with a guard, whose patterns keep their places on the way.
func NewTerms(home string, execOff bool, g Guard) Terms {
	return Terms{
		Home: home, ExecOff: execOff, Guard: g,
		DenyPlaces: patternPlaces(g.CustomDenyPatterns), AllowPlaces: patternPlaces(g.CustomAllowPatterns),
	}
}

func patternPlaces(patterns []Pattern) []string {
	out := make([]string, len(patterns))
	for i, p := range patterns {
		out[i] = p.Place
	}
	return out
}

// GuardWithPlaces is the guard with the places of its patterns.
func (t Terms) GuardWithPlaces() Guard {
	g := t.Guard
	g.CustomDenyPatterns = withPlaces(g.CustomDenyPatterns, t.DenyPlaces)
	g.CustomAllowPatterns = withPlaces(g.CustomAllowPatterns, t.AllowPlaces)
	return g
}

func withPlaces(patterns []Pattern, places []string) []Pattern {
	out := make([]Pattern, len(patterns))
	for i, p := range patterns {
		out[i].Text = p.Text
		if i < len(places) {
			out[i].Place = places[i]
		}
	}
	return out
}

// RunDenial is the error of a command that a guard or file rules refuse, an [ErrDenied] of one
// line.
type RunDenial struct {
	// Rule is the name of a rule, or the rule or custom pattern itself, and Place where it stands.
	Rule  string `json:"rule"`
	Place string `json:"place"`
	// Message is what an agent is told, Command the simple command, or the path, that is denied.
	Message string `json:"message"`
	Command string `json:"command"`
	// Reason says why, Instead what to do.
	Reason  string `json:"reason"`
	Instead string `json:"instead"`
	// Terse keeps Rule and Command out of what Error says.
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

// VisibleRule is the rule that the caller may know; empty if it is kept from them.
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
