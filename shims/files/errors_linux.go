package files

import (
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// messages begin what a tool says when it is done, before the path, and when it failed, as
// PicoClaw's do.
var messages = map[filewire.Tool]struct{ done, failed string }{
	filewire.ReadFileTool:   {"", "failed to read file"},
	filewire.WriteFileTool:  {"File written: ", "failed to write file"},
	filewire.EditFileTool:   {"File edited: ", "failed to edit file"},
	filewire.AppendFileTool: {"Appended to ", "failed to append to file"},
	filewire.ListDirTool:    {"", "failed to read directory"},
}

// do executes a call of a tool, and says how it went.
func (t *Tools) do(
	tool filewire.Tool, args filewire.Args, act func() (filewire.Answer, error),
) (filewire.Answer, error) {
	if err := args.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	out, err := act()
	if err != nil {
		return out, t.explain(tool, args, err)
	}
	if done := messages[tool].done; done != "" {
		name, _, _ := args.Named()
		out.Message = done + name
	}
	return out, nil
}

// explain turns err into an error that a caller may branch on and an agent can read. Every refusal
// becomes a [filewire.Denial] that names tool, operation and path.
func (t *Tools) explain(tool filewire.Tool, args filewire.Args, err error) error {
	if d, ok := errors.AsType[*filewire.Denial](err); ok {
		d.Tool = tool
		return d
	}
	if f, ok := errors.AsType[*filewire.Failure](err); ok {
		return f
	}
	name, op, _ := args.Named()
	failed := messages[tool].failed
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return &filewire.Denial{Tool: tool, Op: op, Path: t.fold(name), Rule: filewire.RuleKernel,
			Place: errnoName(err), Layer: filewire.RuleKernel,
			Message: failed + ": access denied"}
	case errors.Is(err, unix.ENOENT):
		return &filewire.Failure{Kind: "not_found", Message: failed + ": file not found"}
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: cannot use %s: %w: %w", failed, chat.Quote(name), err, kind)
	}
	return fmt.Errorf("%s: cannot use %s: %w", failed, chat.Quote(name), err)
}

func errnoName(err error) string {
	no, _ := errors.AsType[unix.Errno](err)
	return unix.ErrnoName(no)
}

// kindOf is the kind of an error of the kernel: the path is invalid, or the disk or a limit is
// full.
func kindOf(err error) error {
	switch no, _ := errors.AsType[unix.Errno](err); no {
	case unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL:
		return chat.ErrInvalid
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EMFILE, unix.ENFILE, unix.EBUSY, unix.ETXTBSY:
		return chat.ErrBusy
	}
	return nil
}
