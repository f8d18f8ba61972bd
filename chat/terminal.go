package chat

import (
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
