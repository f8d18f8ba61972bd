package broker

import (
	"context"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// Chats is what can be done to chats. Package runs does it in the front, over a [Root], and the
// client of package api asks a daemon. The context has the caller, see [chat.CallerFrom].
// A chat that the caller may not reach is [chat.ErrNotFound], as one that does not exist.
type Chats interface {
	Base
	// Run runs one command inside the chat and returns when it has ended.
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error)
	// RunTo is Run with the output as it comes, to out and not into the result. Nothing
	// calls out any more when it has returned.
	RunTo(ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output) (chat.RunResult, error)
	// ShowRun returns one run, with what it printed so far. A run of another chat is
	// [chat.ErrNotFound], here and below, as one that does not exist.
	ShowRun(ctx context.Context, id chat.ID, run string) (chat.Run, error)
	// ReadRun returns the output of a background run from the cursor on.
	ReadRun(ctx context.Context, id chat.ID, run, cursor string) (chat.RunOutput, error)
	// FollowRun passes the output of a background run to out, from the cursor to the end of the
	// run.
	FollowRun(ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame)) (chat.RunResult, error)
	// Attach shows the chat's terminal, whose bytes go to out, until ctx ends or the terminal
	// lets go. Input and new sizes go to it as to the run that a.Started is told. It is for
	// operators.
	Attach(ctx context.Context, id chat.ID, a chat.Attach, out chat.Output) (chat.RunResult, error)
	// WriteStdin sends body to a run's standard input, and closes it then if last is set. When the
	// run ends first it closes body.
	WriteStdin(ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool) error
	// AddSchedule has the chat run a command by the clock.
	AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error)
	// ReadFile is read_file in the chat; content goes to what begin returns. Like the
	// other file tools it does not wake a chat that is asleep. What the rules or the
	// walls deny is [chat.ErrDenied], and its error names rule and place.
	ReadFile(ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin) (files.Answer, error)
	// WriteFile is write_file; body is the content of a that streams, else nil. It may
	// be read once more after WriteFile has returned.
	WriteFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error)
	// AppendFile is append_file; body is as for WriteFile.
	AppendFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error)
	// EditFile is edit_file.
	EditFile(ctx context.Context, id chat.ID, a files.EditFile) (files.Answer, error)
	// ListDir is list_dir; a line for each entry goes to what begin returns.
	ListDir(ctx context.Context, id chat.ID, a files.ListDir, begin files.Begin) (files.Answer, error)
	// Share copies one regular file to another chat of the same caller.
	Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error)
}

// Base is what [Chats] and [Root] have in common.
type Base interface {
	// Create makes the chat of spec's owner and external id, or finds it; created says which, and
	// c.Ignored what of spec is not so of one that was found. Any number of callers may create the
	// same one at once.
	Create(ctx context.Context, spec chat.Spec) (c chat.Chat, created bool, err error)
	// List returns one page; Page.Next is the cursor for the following one.
	List(ctx context.Context, filter chat.Filter) (chat.Page, error)
	// Get returns one chat as it is now.
	Get(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Patch changes what may change of a chat that is there: its labels.
	Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error)
	// Reap ends the chat and removes every trace of it.
	Reap(ctx context.Context, id chat.ID) error
	// Wake gives the chat a session; one that has a session keeps it.
	Wake(ctx context.Context, id chat.ID) (chat.Chat, error)
	// Sleep ends the chat's processes and keeps its home.
	Sleep(ctx context.Context, id chat.ID) (chat.Chat, error)
	// StartRun starts a run that goes on without its caller, and returns once it is on its way.
	StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error)
	// Runs lists the runs in progress and the background runs that are kept.
	Runs(ctx context.Context, id chat.ID) (chat.Runs, error)
	// EndRun ends a run and returns when nothing of it is left.
	EndRun(ctx context.Context, id chat.ID, run string) error
	// SignalRun sends a signal to every process of a run.
	SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error
	// Schedules lists a chat's schedules, with how the last run of each went.
	Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error)
	// Schedule returns one of them.
	Schedule(ctx context.Context, id chat.ID, schedule string) (chat.Schedule, error)
	// RemoveSchedule forgets one. A run of it that is under way goes on.
	RemoveSchedule(ctx context.Context, id chat.ID, schedule string) error
	// Input types into the chat's terminal.
	Input(ctx context.Context, id chat.ID, in chat.Input) error
	// InputWait is Input that waits, as in.Wait says, and returns what was printed.
	InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error)
	// Screen returns what the chat's terminal shows.
	Screen(ctx context.Context, id chat.ID) (chat.Screen, error)
	// ScreenWith is Screen with what spec says: colours, and lines that were scrolled away.
	ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error)
	// Log returns a piece of what the chat's terminal printed, from the cursor since on;
	// below 0, from the first byte that is kept.
	Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error)
	// FollowLog gives out what Log has piece by piece, as it is printed, and perhaps an empty
	// piece now and then. It ends with ctx, with out's error, or with the chat.
	FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error
	// Explain says whether the chat's file rules allow something, and by which rule.
	Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error)
	// Plan returns what the chat's session is made of. It is for operators.
	Plan(ctx context.Context, id chat.ID) (chat.Plan, error)
	// Host describes the machine and its walls.
	Host(ctx context.Context) (chat.Host, error)
	// Status is the daemon at a glance. It tries nothing, and answers while walls are tried.
	Status(ctx context.Context) (chat.Status, error)
}
