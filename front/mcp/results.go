package mcp

import (
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
)

// toolAnswer is a tool's answer: texts for a reader, and the same as a value that its output schema
// describes. Beside an error it is not looked at.
type toolAnswer[T any] struct {
	texts []string
	value T
}

// terminal is the structured answer of terminal_send and terminal_read: the output from a cursor
// on, or the screen.
type terminal struct {
	Text      string `json:"text" doc:"What was printed, or what the screen shows, as plain text."`
	Cursor    *int64 `json:"cursor,omitempty" doc:"Where what is printed next begins: since of terminal_read."`
	End       *int64 `json:"end,omitempty" doc:"Where what has been printed so far ends."`
	Lost      int64  `json:"lost,omitempty" doc:"How many bytes before the text are left out."`
	Recording *bool  `json:"recording,omitempty" doc:"Whether what the terminal prints now is kept."`
	Until     string `json:"until,omitempty" doc:"What ended the wait."`
	Exit      *int   `json:"exit,omitempty" doc:"The exit code of the command that ended last before the prompt."`
	Program   string `json:"program,omitempty" doc:"The program in front, by the word of the chat's own tmux."`
	Rows      int    `json:"rows,omitempty"`
	Cols      int    `json:"cols,omitempty"`
	CursorRow *int   `json:"cursor_row,omitempty" doc:"Counted from 0."`
	CursorCol *int   `json:"cursor_col,omitempty" doc:"Counted from 0."`
}

// logValue is a piece of a terminal's output.
func logValue(l chat.Log) terminal {
	return terminal{Text: bounded(termsafe.Render(l.Bytes(), chat.TerminalRows, chat.TerminalCols)),
		Cursor: &l.Cursor, End: &l.End, Lost: l.Lost, Recording: &l.Recording}
}

func typedValue(t chat.Typed) terminal {
	v := logValue(t.Log)
	v.Text, v.Program, v.Until, v.Exit = bounded(t.Plain), t.Program, t.Until, t.Exit
	return v
}

func screenValue(s chat.Screen) terminal {
	return terminal{Text: bounded(s.Text), Program: s.Program, Rows: s.Rows, Cols: s.Cols,
		CursorRow: &s.CursorRow, CursorCol: &s.CursorCol}
}

// runValue is how a run ended, with its output shortened as in an answer's text.
func runValue(r chat.RunResult) chat.RunResult {
	r.Stdout, r.Stderr = bounded(valid(r.Stdout)), bounded(valid(r.Stderr))
	return r
}

// runPiece is a piece of a background run's output, and how it ended.
type runPiece struct {
	Run    string        `json:"run"`
	State  chat.RunState `json:"state" doc:"running, ended, or lost: it has ended, and nobody saw how."`
	Stdout string        `json:"stdout" doc:"What it printed from the cursor on."`
	Stderr string        `json:"stderr" doc:"The same of its standard error."`
	Cursor string        `json:"cursor" doc:"Where to go on."`

	StdoutReplaced int64 `json:"stdout_replaced,omitempty" doc:"Bytes that are no UTF-8, and U+FFFD here"`
	StderrReplaced int64 `json:"stderr_replaced,omitempty" doc:"The same of stderr."`

	Missing int64           `json:"missing,omitempty" doc:"Bytes before this that are not kept."`
	Result  *chat.RunResult `json:"result,omitempty" doc:"How it ended; its output is left out."`
}

// doneAnswer is the answer of a tool without a result.
type doneAnswer struct {
	Done bool `json:"done"`
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
