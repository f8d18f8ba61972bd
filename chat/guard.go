package chat

import (
	"fmt"
	"regexp"
	"slices"
)

// GuardPreset names a guard's built-in list of rules.
type GuardPreset string

const (
	// GuardDefault blocks commands that do harm, or cannot work, in a chat's home.
	GuardDefault GuardPreset = "default"
	// GuardPicoClaw is the list of PicoClaw's exec tool (specs/0004-running-commands.md).
	GuardPicoClaw GuardPreset = "picoclaw"
	// GuardNone has no rules: only custom patterns apply.
	GuardNone GuardPreset = "none"
)

// GuardPresets lists them.
func GuardPresets() []GuardPreset { return []GuardPreset{GuardDefault, GuardPicoClaw, GuardNone} }

// Guard says which commands are refused before they run. It is advice: the walls enforce what a
// command may do. The zero value refuses nothing.
type Guard struct {
	Preset GuardPreset `json:"preset,omitempty" yaml:"preset"`
	// EnableDenyPatterns false disables every pattern, those of the preset and custom ones.
	EnableDenyPatterns bool `json:"enable_deny_patterns" yaml:"enable_deny_patterns"`
	// CustomDenyPatterns refuse a simple command in which one is found.
	CustomDenyPatterns []Pattern `json:"custom_deny_patterns" yaml:"custom_deny_patterns"`
	// CustomAllowPatterns exempt a simple command that one of them matches as a whole from every
	// pattern.
	CustomAllowPatterns []Pattern `json:"custom_allow_patterns" yaml:"custom_allow_patterns"`
	// RestrictToWorkspace refuses commands with paths outside the home.
	RestrictToWorkspace bool `json:"restrict_to_workspace" yaml:"restrict_to_workspace"`
	// Place is the file:line of these keys; empty for the defaults.
	Place string `json:"-" yaml:"-"`
}

// DefaultGuard is the guard of a profile without guard keys.
func DefaultGuard() Guard { return Guard{Preset: GuardDefault, EnableDenyPatterns: true} }

// GuardPlaces are the places of a guard's keys, which its JSON leaves out.
type GuardPlaces struct {
	Guard string   `json:"guard,omitempty"`
	Deny  []string `json:"deny,omitempty"`  // of CustomDenyPatterns
	Allow []string `json:"allow,omitempty"` // of CustomAllowPatterns
}

// Places are those of the guard.
func (g Guard) Places() GuardPlaces {
	of := func(patterns []Pattern) (all []string) {
		for _, p := range patterns {
			all = append(all, p.Place)
		}
		return all
	}
	return GuardPlaces{g.Place, of(g.CustomDenyPatterns), of(g.CustomAllowPatterns)}
}

// SetPlaces gives the guard the places that [Guard.Places] returned. It copies the patterns, which
// several guards may have.
func (g *Guard) SetPlaces(p GuardPlaces) {
	at := func(patterns []Pattern, places []string) []Pattern {
		patterns = slices.Clone(patterns)
		for i := range min(len(patterns), len(places)) {
			patterns[i].Place = places[i]
		}
		return patterns
	}
	g.Place = p.Guard
	g.CustomDenyPatterns = at(g.CustomDenyPatterns, p.Deny)
	g.CustomAllowPatterns = at(g.CustomAllowPatterns, p.Allow)
}

// Check reports a preset that there is not, and what [Guard.CheckPatterns] reports.
func (g Guard) Check() error {
	if !slices.Contains(GuardPresets(), g.Preset) {
		return Invalid("preset %s: want one of %v", Quote(string(g.Preset)), GuardPresets())
	}
	return g.CheckPatterns()
}

// On reports whether the guard may refuse anything.
func (g Guard) On() bool { return g.EnableDenyPatterns || g.RestrictToWorkspace }

// Equal reports whether both have the same rules at the same places.
func (g Guard) Equal(o Guard) bool {
	return g.Preset == o.Preset && g.EnableDenyPatterns == o.EnableDenyPatterns &&
		g.RestrictToWorkspace == o.RestrictToWorkspace &&
		slices.Equal(g.CustomDenyPatterns, o.CustomDenyPatterns) &&
		slices.Equal(g.CustomAllowPatterns, o.CustomAllowPatterns)
}

// CheckPatterns reports the first custom pattern that is not a regular expression, as [ErrInvalid].
// It skips disabled patterns.
func (g Guard) CheckPatterns() error {
	if !g.EnableDenyPatterns {
		return nil
	}
	for _, list := range []struct {
		name     string
		patterns []Pattern
	}{
		{"custom_allow_patterns", g.CustomAllowPatterns}, {"custom_deny_patterns", g.CustomDenyPatterns},
	} {
		for i, p := range list.patterns {
			if _, err := p.Compile(); err != nil {
				return fmt.Errorf("cannot use %s[%d]: %w", list.name, i, err)
			}
		}
	}
	return nil
}

// Pattern is a regular expression (RE2) of a config.
type Pattern struct {
	Text string
	// Place is its file:line, if known.
	Place string
}

// MarshalText is the expression.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.Text), nil }

// maxPattern bounds the bytes of a pattern.
const maxPattern = 4096

// Compile parses the expression; an invalid one is [ErrInvalid].
func (p Pattern) Compile() (*regexp.Regexp, error) {
	if p.Text == "" || len(p.Text) > maxPattern {
		return nil, Invalid("want a regular expression (RE2) of 1 to %d bytes, got %d", maxPattern,
			len(p.Text))
	}
	re, err := regexp.Compile(p.Text)
	if err != nil {
		return nil, Invalid("%s: %v: want a regular expression (RE2)", Quote(p.Text), err)
	}
	return re, nil
}

// UnmarshalText does not check the expression; package guard compiles it.
func (p *Pattern) UnmarshalText(b []byte) error {
	p.Text = string(b)
	return nil
}

// The tools that a profile can switch off.
const (
	ToolExec       = "exec"
	ToolTerminal   = "terminal"
	ToolReadFile   = "read_file"
	ToolWriteFile  = "write_file"
	ToolEditFile   = "edit_file"
	ToolAppendFile = "append_file"
	ToolListDir    = "list_dir"
	// ToolReadOnly in a list stands for every tool that can write: a command and a terminal can
	// write whatever the chat may.
	ToolReadOnly = "readonly"
)

// Tools lists them.
func Tools() []string {
	return []string{ToolExec, ToolTerminal, ToolReadFile, ToolWriteFile, ToolEditFile, ToolAppendFile,
		ToolListDir}
}

// CheckTool is an [ErrDenied] for a tool that the profile has switched off.
func (p Profile) CheckTool(tool string) error {
	if slices.Contains(p.ToolsOff, tool) || writes(tool) && slices.Contains(p.ToolsOff, ToolReadOnly) {
		return fmt.Errorf("cannot use %s: profile %s has it switched off: %w", tool, p.Name, ErrDenied)
	}
	return nil
}

// AgentTools are which tools the chats of one agent have, of those that their profile has. In both
// lists [ToolReadOnly] leaves those that only read.
type AgentTools struct {
	// Tools are the only ones; nil is all.
	Tools []string `json:"tools"`
	// ToolsOff are switched off, also if Tools has them.
	ToolsOff []string `json:"tools_off"`
}

// As is the profile as the chats of an agent have it.
func (p Profile) As(agent string) Profile {
	own, ok := p.Agents[agent]
	if !ok {
		return p
	}
	p.ToolsOff = slices.Concat(p.ToolsOff, own.ToolsOff)
	for _, tool := range Tools() {
		reads := !writes(tool) && slices.Contains(own.Tools, ToolReadOnly)
		if own.Tools != nil && !reads && !slices.Contains(own.Tools, tool) {
			p.ToolsOff = append(p.ToolsOff, tool)
		}
	}
	return p
}

// writes reports whether a tool can write.
func writes(tool string) bool { return tool != ToolReadFile && tool != ToolListDir }
