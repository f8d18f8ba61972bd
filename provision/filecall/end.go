package filecall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Answered reports whether the tool gave an answer, which may be a failure. A failure within a
// [filewire.BodyError] is the other tool's, whose error ends the content of a copy.
func Answered(err error) bool {
	var f *filewire.Failure
	return err == nil || !unread(err) && errors.As(err, &f)
}

// tidyTime is how long an interrupted tool may take to undo its unfinished work, once its input has
// ended. A chat can stop its tool and use all of it up. The next write removes what remains.
const tidyTime = 5 * time.Second

// Tidy waits, within bounds, until a tool that gave no answer has undone its work: ended is closed
// when it ends. It does not wait if the chat is being reaped, since its home goes too.
func Tidy(ctx context.Context, err error, ended <-chan struct{}) {
	if Answered(err) || errors.Is(context.Cause(ctx), errCut) {
		return
	}
	select {
	case <-ended:
	case <-time.After(tidyTime):
	}
}

// unread reports whether the content to send could not be read.
func unread(err error) bool {
	var body *filewire.BodyError
	return errors.As(err, &body)
}

// Reason returns err with the reason why there was no answer: the end of ctx, or the tool's own.
func (p *Process) Reason(ctx context.Context, err error) error {
	switch {
	case Answered(err), errors.As(err, new(*filewire.Denial)), unread(err):
		return err // itself: an answer, a denial, or content that its owner could not give
	case ctx.Err() != nil:
		return fmt.Errorf("cannot finish the file tool: %w", context.Cause(ctx))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrClosed),
		errors.Is(err, unix.EPIPE):
		return fmt.Errorf("cannot finish the file tool: it ended without an answer: %w%s: %w",
			err, p.files.Complaint(), chat.ErrBusy)
	}
	return fmt.Errorf("%w%s", err, p.files.Complaint())
}

// believable refuses a denial by a rule that there is not: the front reports it.
func (c *Call) believable(err error) error {
	var f *filewire.Failure
	if unread(err) || !errors.As(err, &f) || f.Denial == nil {
		return err
	}
	d := f.Denial
	d.Tool, d.Op, d.Layer = c.Tool, c.Op, "files"
	switch d.Rule {
	case filewire.RuleKernel:
		d.Layer = filewire.RuleKernel
	case filewire.RuleWorkspace, filewire.RuleHardLink:
		d.Place = ""
	default:
		if c.Denies != nil {
			if by := c.Denies(d); by != nil {
				return by
			}
		}
		return fmt.Errorf("cannot use the answer: it is denied by rule %s, which is none of the "+
			"chat's", chat.Quote(d.Rule))
	}
	return err
}
