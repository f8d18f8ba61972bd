package shims

import (
	"bufio"
	"errors"
	"io"
	"os/signal"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/shims/files"
	"golang.org/x/sys/unix"
)

// runFileTool serves one request of the file tools and ends. chatd-root starts it in namespaces of
// its own, as root; it becomes the chat, in a small view, before it reads the request. The two
// pipes are its only way to chatd. A closed pipe and a file beyond RLIMIT_FSIZE are errors to it: Go's
// SIGPIPE and SIGXFSZ would kill it before it could undo what it began.
func runFileTool(args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) > 0 {
		return fail(errs, chat.Invalid("cannot use argument %s", chat.Quote(args[0])))
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGXFSZ)
	if err := serveFileTool(in, out); err != nil {
		return fail(errs, err)
	}
	return 0
}

func serveFileTool(in io.Reader, out io.Writer) (err error) {
	r := bufio.NewReaderSize(in, 64<<10)
	may, err := plan.ReadFileTool(r)
	if err != nil {
		return err
	}
	if may.Confine != nil {
		if err := enterView(may.Confine); err != nil {
			return err
		}
	}
	tools, err := files.Open(filewire.Options{
		Rules: may.Rules, Workspace: may.Workspace, Roots: may.Roots, ReadOutside: may.ReadOutside,
		AllowRead: may.AllowRead, AllowWrite: may.AllowWrite, MaxBytes: may.MaxBytes,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	return tools.Serve(r, out)
}
