package broker

import (
	"context"
	"errors"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/stream"
)

// ErrUnreached is a call that chatd-root did not take, or did not answer to its end.
var ErrUnreached = errors.New("cannot reach chatd-root")

// Root is what the front asks for. provision.Manager does it, and [Client] passes it to
// chatd-root. The front reads commands and schedules, so Root has runs whose paths are found
// ([chat.RunSpec].Named), questions likewise, and times that have come.
type Root interface {
	Base
	Judged
	Streams
	FileTools
}

// FileTools are the file tools of a [Root], which starts them in chats and reads and copies nothing
// of what they say.
type FileTools interface {
	// FileTool starts a tool in the chat, without waking it, and has talk speak with it. What talk
	// returns is what the tool said, and FileTool's error is what the caller is told of it. What
	// the rules or the walls deny is [chat.ErrDenied], and its error names rule and place.
	FileTool(ctx context.Context, id chat.ID, u files.Use, talk files.Talk) error
	// ShareFile has talk copy a file of the chat to another of the same caller, with two tools at
	// once: one reads, the other writes. As the answer of the first, talk says what it copied.
	ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk files.Talk) error
}

// Streams are the runs of a [Root], which reads nothing of what they print, and copies nothing of
// what they read.
type Streams interface {
	// Run runs one command inside the chat and returns when it has ended, without output. begun
	// is called before, once the command is on its way, with the read ends of its streams; they
	// are begun's to close, and the command ends with nobody there to read. begun may not wait
	// for what is printed. An OutputMax of 0 is a run of whose output nothing is kept.
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec, begun Begun) (chat.RunResult, error)
	// Attach is that for a client of the chat's terminal, see [Chats].
	Attach(ctx context.Context, id chat.ID, a chat.Attach, begun Begun) (chat.RunResult, error)
	// OpenRun returns one run and, of a background run, the files that keep what it prints, for
	// the caller to close. A run of another chat is [chat.ErrNotFound], as one that does not exist.
	OpenRun(ctx context.Context, id chat.ID, run string) (stream.Opened, error)
	// AwaitRun returns how a background run ended, without output, once it has.
	AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error)
	// WriteStdin has write write to a run's standard input, and closes it then if last is set.
	// Nobody else writes to that run meanwhile.
	WriteStdin(ctx context.Context, id chat.ID, run string, last bool, write Writes) error
}

// Writes writes to a run, and closes its end. It returns when ctx ends, as ctx does with the run.
type Writes = func(ctx context.Context, to stream.Input) error

// Begun is told of a run that is on its way.
type Begun = func(run string, stdout, stderr *os.File)
