package chat

import (
	"strings"
	"unicode/utf8"
)

// MaxKeyByKey bounds a text that is typed key by key, in characters, because each takes time.
const MaxKeyByKey = 1000

// Input is typed into the terminal: text, or named keys, not both.
type Input struct {
	// Text is typed as people write it. Line ends of every system are Enter or, in a paste, line feeds;
	// control characters other than tab, and terminal sequences, are left out.
	Text string `json:"text,omitempty" doc:"Typed as text: without control characters other than tab and line ends, and without terminal sequences. Press keys by keys."`
	// Enter presses Enter after the text. If a program other than the shell reads, it comes after a
	// pause: many take text and Enter together for a paste.
	Enter bool `json:"enter,omitempty" doc:"Press Enter after the text, and apart from it: a program that reads may take text and Enter together for a paste."`
	// KeyByKey types the text a character at a time, and never as a paste.
	KeyByKey bool `json:"key_by_key,omitempty" doc:"Type the text a character at a time, at most 1000, and never as a paste."`
	// Keys are names as in "ctrl-c", "up", "f1", or those of tmux(1): "C-c", "Up", "F1".
	Keys []string `json:"keys,omitempty" maxItems:"64" doc:"Keys by name, as in ctrl-c, up, f1, or those of tmux(1)."`
	// Size, if set, is the terminal's from now on, also over a sleep. It needs no text and no keys.
	Size *TTY `json:"size,omitempty" doc:"The terminal's size from now on, 500 each way at most."`
	// OnlyIf, if set, is a condition without which nothing is typed.
	OnlyIf *OnlyIf `json:"only_if,omitempty" doc:"Type only if this holds; else the answer is conflict, and nothing is typed."`
	// Wait, if it is set, makes the answer a [Typed].
	Wait *Wait `json:"wait,omitempty" doc:"Wait for the prompt, output, quiet or a pattern on the screen, and answer with what was printed."`
}

// OnlyIf is a condition on the program in front in the terminal. It is checked against the report
// of the chat's tmux and shell, in the same step as the typing. If it fails, the error is
// [ErrConflict].
type OnlyIf struct {
	// Prompt is [PromptPresent], [PromptAbsent], or empty for either.
	Prompt string `json:"prompt,omitempty" enum:"present,absent" doc:"present: only while the shell is at its prompt; absent: only while it is not, so that a program reads."`
	// Program is the name of the program in front, as [Screen].Program has it.
	Program string `json:"program,omitempty" maxLength:"64" doc:"Only while this program is in front, by the name that screen has for it."`
}

// The values of [OnlyIf].Prompt: the shell is at its prompt, or it is not, so that a program reads.
const (
	PromptPresent = "present"
	PromptAbsent  = "absent"
)

// NeedsSession reports whether a sleeping chat cannot meet the condition: its terminal begins at a
// prompt.
func (o *OnlyIf) NeedsSession() bool {
	return o != nil && (o.Program != "" || o.Prompt == PromptAbsent)
}

// String is the condition in words, as in "the prompt is there".
func (o *OnlyIf) String() string {
	var all []string
	if o.Prompt == PromptPresent {
		all = append(all, "the shell's prompt is there")
	} else if o.Prompt == PromptAbsent {
		all = append(all, "the shell's prompt is not there")
	}
	if o.Program != "" {
		all = append(all, Quote(o.Program)+" is in front")
	}
	return strings.Join(all, " and ")
}

// Types reports whether there is anything to type.
func (in Input) Types() bool { return len(in.Keys) > 0 || in.Text != "" || in.Enter }

// Validate reports the first invalid field, as [ErrInvalid]. Package tmux checks the names of keys
// and programs.
func (in Input) Validate() error {
	switch {
	case len(in.Keys) > 0 && (in.Text != "" || in.Enter):
		return Invalid("cannot type: want text or keys, not both")
	case in.Size != nil && !in.Size.isSize(MaxTerminal):
		return Invalid("cannot set the size: %d rows and %d cols, want 1 to %d of each", in.Size.Rows,
			in.Size.Cols, MaxTerminal)
	case in.Size != nil && in.OnlyIf != nil:
		return Invalid("cannot type: size has no condition: want it without only_if")
	case !in.Types() && (in.Size == nil || in.Wait != nil):
		return Invalid("cannot type: no text, no enter, no keys")
	case len(in.Text) > MaxInput:
		return Invalid("cannot type: %d bytes, want at most %d", len(in.Text), MaxInput)
	case in.KeyByKey && utf8.RuneCountInString(in.Text) > MaxKeyByKey:
		return Invalid("cannot type key by key: %d characters, want at most %d",
			utf8.RuneCountInString(in.Text), MaxKeyByKey)
	case in.KeyByKey && in.Text == "":
		return Invalid("cannot type key by key: want a text")
	case strings.IndexByte(in.Text, 0) >= 0:
		return Invalid("cannot type: text holds a NUL")
	case in.OnlyIf != nil && *in.OnlyIf == (OnlyIf{}):
		return Invalid("cannot type: only_if is empty: want prompt or program")
	case in.OnlyIf != nil && in.OnlyIf.Prompt != "" && in.OnlyIf.Prompt != PromptPresent &&
		in.OnlyIf.Prompt != PromptAbsent:
		return Invalid("cannot type: only_if.prompt %s: want %s or %s", Quote(in.OnlyIf.Prompt),
			PromptPresent, PromptAbsent)
	case in.Wait != nil:
		return in.Wait.Validate()
	}
	return nil
}

// MaxHistory bounds the lines above the screen that are shown with it; tmux keeps no more.
const MaxHistory = 2000

// ScreenSpec selects what a [Screen] contains.
type ScreenSpec struct {
	Styles  bool `json:"styles,omitempty"`  // with the sequences of colours and the like (SGR), and no others
	History int  `json:"history,omitempty"` // lines scrolled off the top, if there are as many
}

// Validate reports an invalid number of lines, as [ErrInvalid].
func (s ScreenSpec) Validate() error {
	if s.History < 0 || s.History > MaxHistory {
		return Invalid("cannot show the screen: history %d: want 0 to %d lines", s.History, MaxHistory)
	}
	return nil
}

// Screen is what the terminal shows now.
type Screen struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
	// Text is the visible lines, without trailing blank ones. Of a character with all its marks tmux
	// keeps 21 bytes; [Typed].Plain and [Log] have all. A chat printed it: escape it before printing
	// it on a terminal.
	Text string `json:"text"`
	// History counts the first lines of Text, which were scrolled off the screen.
	History int `json:"history"`
	// Program is the name of the program in front, as the chat's tmux reports it.
	Program string `json:"program"`
	// CursorRow and CursorCol count from 0.
	CursorRow int `json:"cursor_row"`
	CursorCol int `json:"cursor_col"`
}
