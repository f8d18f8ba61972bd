package chat

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// LogSize bounds what is kept of what a chat's terminal printed, in bytes; at least half
// of it is there once that much was printed.
const LogSize = 2 << 20

// MaxLogPage bounds one piece of it that is answered.
const MaxLogPage = 256 << 10

// Bounds of a wait.
const (
	DefaultQuiet = Duration(time.Second)
	DefaultWait  = Duration(time.Minute)
	MaxWait      = Duration(10 * time.Minute)
	// MaxTyped bounds the output that comes with the answer; of more, the end does.
	MaxTyped = 1 << 20
)

// What a wait is for, and what ended it.
const (
	UntilPrompt = "prompt"
	UntilQuiet  = "quiet"
	UntilMax    = "max"   // its time was over
	UntilEnded  = "ended" // the session was
)

// Log is a piece of what a chat's terminal printed. Cursors count the bytes that were ever
// printed, also those that are not kept any more.
type Log struct {
	// From is where this piece begins, Cursor where the next one does, and End where what
	// has been printed so far ends.
	From   int64 `json:"from"`
	Cursor int64 `json:"cursor"`
	End    int64 `json:"end"`
	// Lost is how many bytes between the cursor that was asked for and From are not kept any more.
	Lost int64 `json:"lost"`
	// Text is the piece, or Base64 where it is no UTF-8. It is what a chat printed: escape
	// it before it meets a terminal.
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Recording says whether what the terminal prints now is kept: false for a chat that is
	// asleep, and for one that ended its own writer.
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

// Wait says how long [Input] waits after it has typed.
type Wait struct {
	// Until is [UntilPrompt] or [UntilQuiet].
	Until string `json:"until" enum:"prompt,quiet" doc:"prompt: the shell's next prompt; quiet: nothing printed for a while."`
	// Quiet is how long nothing must be printed; zero means [DefaultQuiet].
	Quiet Duration `json:"quiet,omitempty" doc:"For until quiet: how long nothing is printed; 1s if it is left out."`
	// Max is how long is waited at most; zero means [DefaultWait].
	Max Duration `json:"max,omitempty" doc:"How long to wait at most; 60s if it is left out, 10m at most."`
}

// Validate reports a wait that cannot be meant, as [ErrInvalid].
func (w Wait) Validate() error {
	switch {
	case w.Until != UntilPrompt && w.Until != UntilQuiet:
		return fmt.Errorf("cannot wait: until %s: want %s or %s: %w", Quote(w.Until), UntilPrompt, UntilQuiet, ErrInvalid)
	case w.Until == UntilPrompt && w.Quiet != 0:
		return fmt.Errorf("cannot wait: quiet belongs to until %s: %w", UntilQuiet, ErrInvalid)
	case w.Max < 0 || w.Max > MaxWait:
		return fmt.Errorf("cannot wait: max %s: want 0s to %s: %w", w.Max, MaxWait, ErrInvalid)
	case w.Quiet < 0 || w.Quiet > MaxWait:
		return fmt.Errorf("cannot wait: quiet %s: want 0s to %s: %w", w.Quiet, MaxWait, ErrInvalid)
	}
	return nil
}

// Typed is what came after an input with a wait: the output in Log, from the input on, at
// most [MaxTyped] bytes of it, with what was left out counted in Lost.
type Typed struct {
	Log
	// Until is what ended the wait: [UntilPrompt], [UntilQuiet], [UntilMax] or [UntilEnded].
	Until string `json:"until"`
	// Exit is the exit code of the command that ended last before the prompt, in the chat's
	// own word (OSC 133); absent where there was no prompt with a code.
	Exit *int `json:"exit,omitempty"`
}

// Attach says how somebody is attached to a terminal.
type Attach struct {
	// TTY is the size of the terminal in front of whoever it is.
	TTY TTY `json:"tty" doc:"The size of the terminal that is attached."`
	// ReadOnly shows the terminal and takes nothing typed.
	ReadOnly bool `json:"read_only,omitempty" doc:"Show the terminal, and take no input."`
	// Started, if it is set, is called with the name by which input and a new size are sent,
	// as to a run.
	Started func(run string) `json:"-"`
}

// Validate reports a size that cannot be meant, as [ErrInvalid].
func (a Attach) Validate() error { return a.TTY.validate() }
