package session

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// wait waits for the command or for ctx, and then ends the whole leaf. It does not wait for pipes
// to close, which a descendant may hold open, and waits only briefly for killed processes.
func (l Leaf) wait(ctx context.Context, grace time.Duration, cmd *exec.Cmd) (w waitedRun) {
	ended, waited := make(chan error, 1), make(chan struct{})
	go func() { ended <- cmd.Wait(); close(waited) }()
	var termErr error
	select {
	case w.err = <-ended:
		w.over = true
		w.left, termErr = l.signal(0, 0)
	case <-ctx.Done():
		w.timedOut = errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		termErr = l.Term(grace, cmd.Process.Pid)
	}
	// The OOM killer may end nsenter with its command: the command is an orphan then.
	late, killErr := l.End(waited)
	if w.late = late; !w.over {
		select {
		case w.err = <-ended:
			w.over = true
		default:
		}
	}
	// A command's own end stays apart from trouble in cleaning up.
	if err := errors.Join(termErr, killErr); err != nil {
		w.err = errors.Join(err, w.err)
	}
	return w
}

// waitedRun is how the wait for a command ended.
type waitedRun struct {
	err      error
	timedOut bool
	over     bool // the command was waited for
	left     int  // the processes that the command left running
	late     bool // some process of its leaf still lives, and ends in the background
}
