package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
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
