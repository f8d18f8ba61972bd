package verbs

import (
	"context"
	"errors"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/stream"
)

// ErrUnreached is the error of a call that chatd-root did not accept, or did not answer in full.
var ErrUnreached = errors.New("cannot reach chatd-root")

// Root is the operations that the front needs from chatd-root. provision.Manager implements it, and
// broker.Client passes calls to it. The front parses commands and schedules, so Root gets runs and
// questions with their paths already found ([chat.RunSpec].Named), and schedules that are due.
type Root interface {
	Base
	Checks
	Streams
	FileTools
}

// FileTools starts file tools in chats. A [Root] neither reads nor copies their output.
type FileTools interface {
	// FileTool starts a tool in the chat, without waking it, and calls talk to speak with it. talk
	// returns the tool's result, and FileTool the caller's error. A denial by rules or walls is
	// [chat.ErrDenied], and its error names rule and place.
	FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error
	// ShareFile calls talk to copy a file of the chat to another of the same caller, with two
	// tools. One reads, the other writes. talk reports what it copied as the first tool's answer.
	ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error
}

// Streams starts runs. A [Root] neither reads their output nor copies their input.
type Streams interface {
	// Run runs one command inside the chat and returns when it has ended, without output. It calls
	// begun as soon as the command has started, with the read ends of its streams. begun must close
	// them, and must not wait for output; without a reader the command ends when it prints. With an
	// OutputMax of 0 no output is kept.
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec, begun Begun) (chat.RunResult, error)
	// Attach is Run for a client of the chat's terminal, see [Chats].
	Attach(ctx context.Context, id chat.ID, a chat.Attach, begun Begun) (chat.RunResult, error)
	// OpenRun returns one run and, of a background run, the files that keep what it prints, for
	// the caller to close. A run of another chat is [chat.ErrNotFound], as one that does not exist.
	OpenRun(ctx context.Context, id chat.ID, run string) (stream.OpenRun, error)
	// AwaitRun returns how a background run ended, without output, once it has.
	AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error)
	// WriteStdin calls write with a run's standard input, and then closes the input if last is set.
	// It excludes other writers of that run.
	WriteStdin(ctx context.Context, id chat.ID, run string, last bool, write Writes) error
}

// Writes writes to a run, and closes its end. It returns when ctx ends; the end of the run ends
// ctx.
type Writes = func(ctx context.Context, to stream.Input) error

// Begun gets the id and the streams of a run that has started.
type Begun = func(run string, stdout, stderr *os.File)

// Checks is what the front needs to check commands and schedules.
type Checks interface {
	// Terms are what the front checks the commands of a chat by.
	Terms(ctx context.Context, id chat.ID) (chat.Terms, error)
	// RefuseRun writes to the audit log that the front refused a run.
	RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error
	// PutSchedule keeps a schedule of the caller's.
	PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error)
	// KeptSchedules passes the schedules of all chats to out.
	KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error
	// KeptSchedule returns one of them.
	KeptSchedule(ctx context.Context, id chat.ID, schedule string) (chat.StoredSchedule, error)
	// BeginDue starts the run of a due schedule, as the schedule's creator. If running is false,
	// the result is already recorded.
	BeginDue(ctx context.Context, d chat.DueSchedule) (running bool, err error)
	// AwaitDue returns when the result of that run is recorded, or when ctx ends: the run
	// continues.
	AwaitDue(ctx context.Context, d chat.DueSchedule) error
	// AddSkipped adds d.Skipped to the recorded count.
	AddSkipped(ctx context.Context, d chat.DueSchedule) error
}
