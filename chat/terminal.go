package chat

import (
	"time"
	"unicode/utf8"
)

// LogSize bounds what is kept of what a chat's terminal printed, in bytes; at least half
// of it is there once that much was printed.
const LogSize = 2 << 20

// Size of a chat's terminal in cells, if nobody changed it.
const TerminalRows, TerminalCols = 40, 120

// MaxLogPage bounds one piece of it that is answered.
const MaxLogPage = 256 << 10

// Bounds of a wait.
const (
	DefaultQuiet = Duration(time.Second)
	DefaultWait  = Duration(time.Minute)
	MaxWait      = Duration(10 * time.Minute)
	// MaxPattern bounds a pattern for the screen in bytes, and maxProgram what it is compiled to:
	// matching takes their product with the size of a screen.
	MaxPattern = 256
	maxProgram = 1000
	// MaxTyped bounds the output that comes with the answer; of more, the end does.
	MaxTyped = 1 << 20
)

// What a wait is for, and what ended it.
const (
	UntilPrompt = "prompt"
	UntilOutput = "output" // something was printed
	UntilQuiet  = "quiet"
	UntilScreen = "screen" // the screen shows a pattern
	UntilMore   = "more"   // the shell wants the rest of a line
	UntilMax    = "max"    // its time was over
	UntilEnded  = "ended"  // the session was
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
