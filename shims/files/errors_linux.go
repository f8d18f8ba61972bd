package files

import (
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// explain turns err into an error that a caller may branch on and an agent can read. failed begins
// the message, as PicoClaw's does. Every refusal becomes a [filewire.Denial] that names tool, operation and
// path.
func explain(tool filewire.Tool, op filewire.Op, t *Tools, name, failed string, err error) error {
	var d *filewire.Denial
	if errors.As(err, &d) {
		d.Tool = tool
		return d
	}
	var a *callerError
	if errors.As(err, &a) {
		return a
	}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return &filewire.Denial{Tool: tool, Op: op, Path: t.fold(name), Rule: filewire.RuleKernel,
			Place: errnoName(err), Layer: filewire.RuleKernel,
			Message: failed + ": access denied"}
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: file not found%w", failed, silentError{chat.ErrNotFound})
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: cannot use %s: %w: %w", failed, chat.Quote(name), err, kind)
	}
	return fmt.Errorf("%s: cannot use %s: %w", failed, chat.Quote(name), err)
}

// silentError carries an error's kind without its text, for messages that are fixed.
type silentError struct{ err error }

func (silentError) Error() string   { return "" }
func (s silentError) Unwrap() error { return s.err }

func errnoName(err error) string {
	var no unix.Errno
	if errors.As(err, &no) {
		return unix.ErrnoName(no)
	}
	return ""
}

// kindOf is the kind of an error of the kernel: the path is invalid, or the disk or a limit is
// full.
func kindOf(err error) error {
	for _, no := range []unix.Errno{unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL} {
		if errors.Is(err, no) {
			return chat.ErrInvalid
		}
	}
	for _, no := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EMFILE, unix.ENFILE,
		unix.EBUSY, unix.ETXTBSY} {
		if errors.Is(err, no) {
			return chat.ErrBusy
		}
	}
	return nil
}
