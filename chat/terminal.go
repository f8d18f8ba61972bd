package chat

import (
	"regexp"
	"regexp/syntax"
	"time"
	"unicode/utf8"
)

// LogSize bounds the kept output of a chat's terminal, in bytes; at least the last LogSize/2 bytes
// are kept.
const LogSize = 2 << 20

// Default size of a chat's terminal in cells.
const TerminalRows, TerminalCols = 40, 120

// MaxTerminal bounds the size of a chat's terminal, either way.
const MaxTerminal = 500

// MaxLogPage bounds one piece of the log in an answer, in bytes.
const MaxLogPage = 256 << 10

// Bounds of a wait.
const (
	DefaultQuiet = Duration(time.Second)
	DefaultWait  = Duration(time.Minute)
	MaxWait      = Duration(10 * time.Minute)
	// MaxPattern bounds a pattern for the screen in bytes, and maxProgram its compiled size. The
	// time of a match grows with that size and the screen's.
	MaxPattern = 256
	maxProgram = 1000
	// MaxTyped bounds the output in an answer, in bytes; of longer output the tail is returned.
	MaxTyped = 1 << 20
)

// Events that a wait waits for, or that end it.
const (
	UntilPrompt = "prompt"
	UntilOutput = "output" // something was printed
	UntilQuiet  = "quiet"
	UntilScreen = "screen" // the screen shows a pattern
	UntilMore   = "more"   // the shell wants the rest of a line
	UntilMax    = "max"    // its maximum time has passed
	UntilEnded  = "ended"  // the session has ended
)

// Log is a piece of the output of a chat's terminal. Cursors count all bytes ever printed,
// including those no longer kept.
type Log struct {
	// From is the cursor at the start of this piece, Cursor that of the next piece, and End that
	// after all output so far.
	From   int64 `json:"from"`
	Cursor int64 `json:"cursor"`
	End    int64 `json:"end"`
	// Lost counts the bytes between the requested cursor and From that are no longer kept.
	Lost int64 `json:"lost"`
	// Text is the piece; Base64 replaces it if the piece is not UTF-8. A chat printed it: escape it
	// before printing it on a terminal.
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Recording reports whether new output is kept: false while the chat is asleep, or after it has
	// ended its own writer.
	Recording bool `json:"recording"`
}

// Bytes is the piece.
func (l Log) Bytes() []byte {
	if l.Base64 != nil {
		return l.Base64
	}
	return []byte(l.Text)
}

// SetBytes makes p the piece.
func (l *Log) SetBytes(p []byte) {
	l.Text, l.Base64 = "", nil
	if utf8.Valid(p) {
		l.Text = string(p)
	} else {
		l.Base64 = append([]byte{}, p...)
	}
}

// Attach describes a client that attaches to a terminal.
type Attach struct {
	// TTY is the size of the client's terminal.
	TTY TTY `json:"tty" doc:"The size of the terminal that is attached."`
	// ReadOnly shows the terminal and accepts no input.
	ReadOnly bool `json:"read_only,omitempty" doc:"Show the terminal, and take no input."`
	// Started, if set, is called with the id to which input and new sizes are sent, as to a run.
	Started func(run string) `json:"-"`
}

// Validate reports an invalid size, as [ErrInvalid].
func (a Attach) Validate() error { return a.TTY.validate() }

// Wait says how long [Input] waits after it has typed. The echo of the input is not output: output
// begins with the command's or, if another program reads, after Enter.
type Wait struct {
	// Until is [UntilPrompt], [UntilOutput], [UntilQuiet] or [UntilScreen].
	Until string `json:"until" enum:"prompt,output,quiet,screen" doc:"prompt: the shell's next prompt; output: something printed; quiet: after it nothing printed for a while; screen: after it the screen shows pattern."`
	// Pattern is a regular expression (RE2) for [UntilScreen], matched against the text of the
	// screen, in which ^ and $ are those of a line.
	Pattern string `json:"pattern,omitempty" maxLength:"256" doc:"For until screen: a regular expression (RE2) that the screen's text must match; ^ and $ are those of a line, which is one though the terminal wraps it."`
	// Quiet is how long the terminal must print nothing; zero means [DefaultQuiet], or none for
	// [UntilScreen].
	Quiet Duration `json:"quiet,omitempty" doc:"For until quiet: how long nothing is printed, 1s if it is left out; for until screen: how long the screen must stand still too."`
	// Max bounds the wait; zero means [DefaultWait].
	Max Duration `json:"max,omitempty" doc:"How long to wait at most; 60s if it is left out, 10m at most."`
}

// Validate reports the first invalid field, as [ErrInvalid].
func (w Wait) Validate() error {
	switch {
	case w.Until != UntilPrompt && w.Until != UntilOutput && w.Until != UntilQuiet && w.Until != UntilScreen:
		return Invalid("cannot wait: until %s: want %s, %s, %s or %s", Quote(w.Until), UntilPrompt,
			UntilOutput, UntilQuiet, UntilScreen)
	case (w.Until == UntilPrompt || w.Until == UntilOutput) && w.Quiet != 0:
		return Invalid("cannot wait: quiet belongs to until %s and %s", UntilQuiet, UntilScreen)
	case (w.Until == UntilScreen) != (w.Pattern != ""):
		return Invalid("cannot wait: pattern belongs to until %s, which wants one", UntilScreen)
	case w.Max < 0 || w.Max > MaxWait:
		return Invalid("cannot wait: max %s: want 0s to %s", w.Max, MaxWait)
	case w.Quiet < 0 || w.Quiet > MaxWait:
		return Invalid("cannot wait: quiet %s: want 0s to %s", w.Quiet, MaxWait)
	}
	_, err := w.Regexp()
	return err
}

// Regexp is the compiled pattern; nil if there is none.
func (w Wait) Regexp() (*regexp.Regexp, error) {
	if w.Pattern == "" {
		return nil, nil
	}
	if len(w.Pattern) > MaxPattern {
		return nil, Invalid("cannot use pattern: %d bytes, want at most %d", len(w.Pattern), MaxPattern)
	}
	tree, err := syntax.Parse("(?m)"+w.Pattern, syntax.Perl)
	if err != nil {
		return nil, Invalid("cannot use pattern %s: %v", Quote(w.Pattern), err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil || len(prog.Inst) > maxProgram {
		return nil, Invalid("cannot use pattern %s: it is too large once its repetitions are written out",
			Quote(w.Pattern))
	}
	return regexp.MustCompile("(?m)" + w.Pattern), nil
}

// Typed is the answer to an input with a wait: Log has the output since the input, at most
// [MaxTyped] bytes; Lost counts the rest.
type Typed struct {
	Log
	// Plain is the same as text for people: for a command at the shell's prompt its output up to
	// the next prompt; under another program the screen, and the lines scrolled off since the
	// input. Of more than 256 KiB it is the tail.
	Plain string `json:"plain" doc:"As text: what the command printed, between its line and the next prompt; under another program, what the terminal shows, with what was scrolled away meanwhile."`
	// Program is the program in front at the time of the input, as [Screen].Program.
	Program string `json:"program" doc:"The program in front when it was typed, by the word of the chat's own tmux."`
	// Until is the event that ended the wait: that of the [Wait], [UntilPrompt], [UntilMore],
	// [UntilMax] or [UntilEnded].
	Until string `json:"until" enum:"prompt,output,quiet,screen,more,max,ended" doc:"What ended the wait; more: the shell wants the rest of the line; max: its time was over; ended: the session has."`
	// Exit is the exit code of the last command before the prompt, as the chat reports it (OSC
	// 133); absent without such a prompt.
	Exit *int `json:"exit,omitempty"`
	// Output is the part of Log from which the front renders Plain; nil if Plain is set. It is not
	// in the API.
	Output *Span `json:"-"`
}

// Span is the range between two cursors of a [Log], and the size of the terminal then.
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	TTY
}
