package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// Signal sends a valid signal to every process of the run, and SIGCONT after it; s.TTY sets the
// size of its terminal instead.
func (r *Run) Signal(s chat.RunSignal) error {
	switch {
	case r.IsOver() || r.pid() == 0:
		return r.notRunning("signal")
	case s.TTY != nil:
		return r.resize(*s.TTY)
	}
	sig := unix.SignalNum("SIG" + s.Name())
	_, err := r.in.opt.Groups.SignalRun(r.Chat, r.Info.ID, sig, r.pid())
	if errors.Is(err, chat.ErrNotFound) {
		return r.notRunning("signal")
	}
	return err
}

func (r *Run) notRunning(verb string) error {
	return fmt.Errorf("cannot %s run %s: it is not running: %w",
		verb, r.Info.ID, chat.ErrWrongPhase)
}

// resize tells chatd-shim, which holds the terminal, its new size. It is one small write, whole or
// not at all, so that it may come between the pieces of standard input.
func (r *Run) resize(size chat.TTY) error {
	if r.Info.TTY == nil {
		return fmt.Errorf("cannot resize run %s: it has no tty: %w", r.Info.ID, chat.ErrWrongPhase)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return r.writeFrame(ctx, stream.SizeFrame(size.Rows, size.Cols))
}

// writeFrame writes one frame to the terminal of the run, unless ctx ends first.
func (r *Run) writeFrame(ctx context.Context, frame []byte) error {
	w, err := r.openStdin()
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })()
	_, err = w.Write(frame)
	return r.inputError(err)
}

// LockStdin makes the caller the only writer of standard input until unlock. It is [chat.ErrBusy]
// while there is another writer.
func (r *Run) LockStdin() (unlock func(), err error) {
	if !r.writing.TryLock() {
		return nil, fmt.Errorf("cannot write to run %s: somebody else is writing to it: %w",
			r.Info.ID, chat.ErrBusy)
	}
	return r.writing.Unlock, nil
}

// WriteStdin calls write for a run whose standard input is open, and then closes that input if last
// is set. write gets the end to write to, in an open file description of its own. Its context ends
// with the run; the error is then [chat.ErrWrongPhase]. The caller holds [Run.LockStdin].
func (r *Run) WriteStdin(
	ctx context.Context, last bool, write func(context.Context, stream.Input) error,
) error {
	w, err := r.openStdin()
	if err != nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	err = write(within, stream.Input{W: w, Framed: r.Info.TTY != nil})
	switch {
	case ctx.Err() != nil && !r.IsOver(): // a body of net/http that is closed ends its context too
		return fmt.Errorf("cannot write to run %s: the caller went away: %w",
			r.Info.ID, context.Cause(ctx))
	case err != nil && r.IsOver():
		return r.notRunning("write to")
	case err == nil && last:
		return r.closeStdin(within)
	}
	return err
}

// inputError is the error of a failed write to standard input.
func (r *Run) inputError(err error) error {
	switch {
	case err == nil:
		return nil
	case r.IsOver(), errors.Is(err, os.ErrClosed):
		return r.notRunning("write to")
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("cannot write to run %s: nobody reads its standard input any more: %w",
			r.Info.ID, chat.ErrWrongPhase)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("cannot write to run %s: it does not read: %w", r.Info.ID, chat.ErrBusy)
	}
	return fmt.Errorf("cannot write to run %s: %w", r.Info.ID, err)
}

// openStdin opens the end to write to, without waiting. For a background run that is the fifo,
// which is root's, in a directory of root's: another chatd may have started the run. The receiver
// of the file changes nothing of what chatd-root has: flags belong to one opening (fcntl(2)).
func (r *Run) openStdin() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsOver() {
		return nil, r.notRunning("write to")
	}
	var f *os.File
	var err error
	switch {
	case r.Info.Background:
		f, err = os.OpenFile(r.fifo(), os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	case r.stdin == nil:
		return nil, r.noStdin()
	default:
		f, err = reopen(r.stdin)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, r.noStdin()
	}
	return f, r.inputError(err)
}

// reopen opens a pipe once more, for writing.
func reopen(w *os.File) (f *os.File, err error) {
	err = sys.OnDescriptor(w, func(fd int) error {
		f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err
	})
	return f, err
}

func (r *Run) noStdin() error {
	return fmt.Errorf("cannot write to run %s: its standard input is not open (open_stdin): %w",
		r.Info.ID, chat.ErrWrongPhase)
}

// closeStdin ends standard input, unless ctx ends first. For a terminal it sends an end-of-file
// frame instead, as Ctrl-D would.
func (r *Run) closeStdin(ctx context.Context) error {
	switch {
	case r.Info.TTY != nil:
		return r.writeFrame(ctx, stream.EndFrame())
	case r.Info.Background:
		return errors.Join(r.order(plan.OrderClose), safefs.Remove(r.dir, "stdin"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.stdin
	if r.stdin = nil; w == nil {
		return nil // the run is over
	}
	if err := w.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return r.inputError(err)
	}
	return nil
}

// fifo is the fifo of a background run's standard input.
func (r *Run) fifo() string { return filepath.Join(r.dir, "stdin") }
