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
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/session"
	"github.com/chatd/chatd/shims"
)

// Answered reports whether the tool gave an answer, which may be a failure. A failure within a
// [files.BodyError] is the other tool's, whose error ends the content of a copy.
func Answered(err error) bool {
	var f *files.Failure
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
	var body *files.BodyError
	return errors.As(err, &body)
}

// explained reports whether err is itself the reason for the end: an answer, a denial, or content
// that its owner could not give.
func explained(err error) bool {
	var d *files.Denial
	return Answered(err) || errors.As(err, &d) || unread(err)
}

// Overtaken returns why a call without an answer ended, if the tool did not cause it: the caller
// went away, its time was over, or its session ended, which ended reports. To the caller a broken
// pipe, a missing cgroup and a process that cannot be joined are the same. It is nil if err is
// itself the reason.
func Overtaken(ctx context.Context, err error, ended func() error) (why error) {
	if explained(err) {
		return nil
	}
	why = context.Cause(ctx)
	switch {
	case why == nil:
		return ended()
	case errors.Is(err, why):
		return nil
	}
	return why
}

// Reason returns err with the reason why there was no answer: the end of ctx, a tool that was not
// confined, or the tool's own end. An error that has its reason already stays.
func (p *Process) Reason(ctx context.Context, err error) error {
	switch {
	case explained(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("cannot finish the file tool: %w", context.Cause(ctx))
	}
	var report shims.Report
	rerr := session.ReadJSON(p.files.Report, time.Now().Add(time.Second), &report)
	complaint := p.files.Complaint()
	switch {
	case rerr != nil: // usually the chat is at its limit of tasks
		return fmt.Errorf("cannot start the file tool: %w%s: %w", err, complaint, chat.ErrBusy)
	case report.Error != "":
		return fmt.Errorf("cannot start the file tool: %s: %w",
			report.Error, session.ErrNotConfined)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrClosed),
		errors.Is(err, unix.EPIPE):
		return fmt.Errorf("cannot finish the file tool: it ended without an answer: %w%s: %w",
			err, complaint, chat.ErrBusy)
	}
	return fmt.Errorf("%w%s", err, complaint)
}

// believable refuses a denial by a rule that the tools do not have: chatd itself reports
// denials by the file rules.
func (c *Call) believable(err error) error {
	var f *files.Failure
	if unread(err) || !errors.As(err, &f) || f.Denial == nil {
		return err
	}
	d := f.Denial
	d.Tool, d.Op, d.Layer = c.Tool, c.Op, "files"
	switch d.Rule {
	case files.RuleKernel:
		d.Layer = files.RuleKernel
	case files.RuleWorkspace, files.RuleHardLink:
		d.Place = ""
	default:
		return fmt.Errorf("cannot use the answer: it is denied by rule %s, which is none of "+
			"the tools'", chat.Quote(d.Rule))
	}
	return err
}
