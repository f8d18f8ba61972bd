package provision

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
	"github.com/chatd/chatd/shims"
)

// overtaken replaces the error of a call without an answer if the tool did not cause it: the
// caller went away, its time was over, or its session ended. Then a broken pipe, a missing
// cgroup and a process that cannot be joined are the same to the caller. s is nil for a one-shot
// session.
func (m *Manager) overtaken(ctx context.Context, s *session, err error) error {
	var d *files.Denial
	var body *files.BodyError
	why := context.Cause(ctx)
	switch {
	case answered(err), errors.As(err, &d), errors.As(err, &body):
		return err
	case why != nil && errors.Is(err, why):
		return err
	case why != nil:
	case s != nil && s.endsSoon():
		why = fmt.Errorf("the session of chat %s ended meanwhile (sleep, reap, or its last process): ask again: %w", s.id, chat.ErrWrongPhase)
	default:
		return err
	}
	m.log.Debug("a file tool was overtaken", "err", err, "by", why)
	return fmt.Errorf("cannot finish the file tool: %w", why)
}

// endsSoon reports whether the session ends within tidyTime: the kernel ends the other
// processes of a pid namespace before its first.
func (s *session) endsSoon() bool {
	waitSome(s.init.Ended())
	return !s.init.Alive()
}

// answered reports whether the tool gave an answer, which may be a failure.
func answered(err error) bool {
	var f *files.Failure
	return err == nil || errors.As(err, &f)
}

// believable refuses a denial by a rule that the tools do not have: chatd itself reports
// denials by the file rules.
func (c *fileCall) believable(err error) error {
	var f *files.Failure
	if !errors.As(err, &f) || f.Denial == nil {
		return err
	}
	d := f.Denial
	d.Tool, d.Op, d.Layer = c.tool, c.op, "files"
	switch d.Rule {
	case files.RuleKernel:
		d.Layer = files.RuleKernel
	case files.RuleWorkspace, files.RuleHardLink:
		d.Place = ""
	default:
		return fmt.Errorf("cannot use the answer: it is denied by rule %s, which is none of the tools'", chat.Quote(d.Rule))
	}
	return err
}

// toolError returns the reason why there was no answer: the end of ctx, a tool that was not
// confined, or the tool's own end.
func (m *Manager) toolError(ctx context.Context, b *boundFiles, err error) error {
	var d *files.Denial
	var body *files.BodyError
	switch {
	case answered(err), errors.As(err, &d), errors.As(err, &body):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("cannot finish the file tool: %w", context.Cause(ctx))
	}
	var report shims.Report
	switch rerr := readJSON(b.report, time.Now().Add(time.Second), &report); {
	case rerr != nil: // most often a chat at its limit of tasks
		return fmt.Errorf("cannot start the file tool: %w%s: %w", err, b.complaint(), chat.ErrBusy)
	case report.Error != "":
		return fmt.Errorf("cannot start the file tool: %s: %w", report.Error, errNotConfined)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrClosed),
		errors.Is(err, unix.EPIPE):
		return fmt.Errorf("cannot finish the file tool: it ended without an answer: %w%s: %w", err, b.complaint(), chat.ErrBusy)
	}
	return fmt.Errorf("%w%s", err, b.complaint())
}
