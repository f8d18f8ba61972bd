package verbs

import (
	"context"
	"io"

	"github.com/chatd/chatd/chat"
)

// Chats is the operations on chats. Package runs implements it in the front, over a [Root]; package
// client calls a daemon. The context has the caller, see [chat.CallerFrom]. A chat that the caller
// may not reach is [chat.ErrNotFound], as one that does not exist.
type Chats interface {
	Base
	Files
	// Run runs one command inside the chat and returns when it has ended.
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error)
	// RunTo is Run that streams the output to out instead of returning it. It does not call out
	// after it has returned.
	RunTo(ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output) (chat.RunResult, error)
	// ShowRun returns one run, with what it printed so far. A run of another chat is
	// [chat.ErrNotFound], here and below, as one that does not exist.
	ShowRun(ctx context.Context, id chat.ID, run string) (chat.Run, error)
	// ReadRun returns the output of a background run from the cursor on.
	ReadRun(ctx context.Context, id chat.ID, run, cursor string) (chat.RunOutput, error)
	// FollowRun passes the output of a background run to out, from the cursor to the end of the
	// run.
	FollowRun(ctx context.Context, id chat.ID, run, cursor string,
		out func(chat.Frame)) (chat.RunResult, error)
	// Attach streams the chat's terminal to out until ctx ends or the terminal detaches. Input and
	// new sizes are sent to the run whose id a.Started gets. It is for operators.
	Attach(ctx context.Context, id chat.ID, a chat.Attach, out chat.Output) (chat.RunResult, error)
	// WriteStdin sends body to a run's standard input, and then closes the input if last is set. If
	// the run ends first, it closes body.
	WriteStdin(ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool) error
	// AddSchedule adds a command that the chat runs at given times.
	AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error)
}

// Base is the methods that [Chats] and [Root] share.
type Base interface {
	Life
	Archives
	Runs
	Schedules
	Terminals
	Reports
}

var _ Archives = (*Calls)(nil)

// FrontCalls are the calls that only the front answers: chatd-root does not know them, or by other
// arguments.
type FrontCalls struct{ Calls }
