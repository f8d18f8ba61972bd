package provision

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// waitRun waits for the command or for ctx, and then ends the whole leaf. It
// does not wait for pipes to close: a child that left the process group may
// hold them open for as long as it likes. Nor does it wait long for what was killed.
func (m *Manager) waitRun(ctx context.Context, rec state.Record, e entry, cmd *exec.Cmd) (w waitedRun) {
	ended, waited := make(chan error, 1), make(chan struct{})
	go func() { ended <- cmd.Wait(); close(waited) }()
	var termErr error
	select {
	case w.err = <-ended:
		w.over = true
	case <-ctx.Done():
		w.timedOut = errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		termErr = m.termRun(rec, e, cmd.Process.Pid)
	}
	// Out of memory ends nsenter and its command at once: the command is an orphan then.
	late, killErr := m.endLeaf(rec, e.run, waited)
	if w.late = late; !w.over {
		select {
		case w.err = <-ended:
			w.over = true
		default:
		}
	}
	w.err = waitErrAnd(w.err, errors.Join(termErr, killErr))
	return w
}

// waitedRun is how the wait for a command ended.
type waitedRun struct {
	err      error
	timedOut bool
	over     bool // the command was waited for
	late     bool // some of its leaf still lives, and is ended behind the caller
}

// termRun asks everything in the leaf to end, and waits as long as e allows until nothing is
// left. nsenter is root's, is not asked, and ends as its command does: killed before, it could not
// say how that was.
func (m *Manager) termRun(rec state.Record, e entry, nsenter int) error {
	if e.grace <= 0 {
		return nil
	}
	left, err := m.groups.SignalRun(rec.ID, e.run, unix.SIGTERM, nsenter)
	for end := time.Now().Add(e.grace); err == nil && left > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		left, err = m.groups.SignalRun(rec.ID, e.run, 0, 0)
	}
	if errors.Is(err, chat.ErrNotFound) {
		return nil // the session ended, and took the leaf with it
	}
	return err
}

// killRun ends the leaf whether or not the caller still waits, but not for ever:
// a process in uninterruptible sleep ends when its device lets it.
func (m *Manager) killRun(ctx context.Context, rec state.Record, run string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	return m.groups.KillRun(ctx, rec.ID, run)
}

// waitErrAnd keeps a command's own end apart from trouble in cleaning up.
func waitErrAnd(waitErr, killErr error) error {
	if killErr != nil {
		return errors.Join(killErr, waitErr)
	}
	return waitErr
}
