package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/stream"
	"github.com/chatd/chatd/supervise"
)

// SignalRun sends a signal to every process of the run, and SIGCONT after it; WINCH sets
// the size of its terminal.
func (m *Manager) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	if err := s.Validate(); err != nil {
		return err
	}
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	detail := map[string]string{"run": run, "signal": s.Name()}
	if err := m.audit(ctx, rec, "signal", "intent", detail); err != nil {
		return err
	}
	err = m.signalRun(rec, r, s)
	return errors.Join(err, m.auditOutcome(ctx, rec, "signal", detail, err))
}

func (m *Manager) signalRun(rec state.Record, r *liveRun, s chat.RunSignal) error {
	switch {
	case r.isOver() || r.pid() == 0:
		return r.notRunning("signal")
	case s.TTY != nil:
		return r.resize(*s.TTY)
	}
	_, err := m.groups.SignalRun(rec.ID, r.info.ID, unix.SignalNum("SIG"+s.Name()), r.pid())
	if errors.Is(err, chat.ErrNotFound) {
		return r.notRunning("signal")
	}
	return err
}

func (r *liveRun) notRunning(verb string) error {
	return fmt.Errorf("cannot %s run %s: it is not running: %w", verb, r.info.ID, chat.ErrWrongPhase)
}

// resize tells chatd-shim, which holds the terminal, its new size. It is one small write, whole or
// not at all, so that it may come between the pieces of standard input.
func (r *liveRun) resize(size chat.TTY) error {
	if r.info.TTY == nil {
		return fmt.Errorf("cannot resize run %s: it has no tty: %w", r.info.ID, chat.ErrWrongPhase)
	}
	w, err := r.openStdin()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("cannot resize run %s: %w", r.info.ID, err)
	}
	_, err = w.Write(stream.SizeFrame(size.Rows, size.Cols))
	return r.inputError(err)
}

// WriteStdin has write write to the standard input of a run that has it open, and closes it then if
// last is set. write has the end of the run to write to, in a description of its own, and its
// context ends with the run: that is then [chat.ErrWrongPhase].
func (m *Manager) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool,
	write func(context.Context, stream.Input) error,
) error {
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	if !r.writing.TryLock() {
		return fmt.Errorf("cannot write to run %s: somebody else is writing to it: %w", run, chat.ErrBusy)
	}
	defer r.writing.Unlock()
	detail := map[string]string{"run": run, "close": fmt.Sprint(last)}
	if err := m.audit(ctx, rec, "stdin", "intent", detail); err != nil {
		return err
	}
	err = r.giveStdin(ctx, last, write)
	m.touch(rec)
	return errors.Join(err, m.auditOutcome(ctx, rec, "stdin", detail, err))
}

func (r *liveRun) giveStdin(
	ctx context.Context, last bool, write func(context.Context, stream.Input) error,
) error {
	w, err := r.openStdin()
	if err != nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	within = whenClosed(within, r.over)
	err = write(within, stream.Input{W: w, Framed: r.info.TTY != nil})
	switch {
	case ctx.Err() != nil && !r.isOver(): // with a body of net/http that is closed its context ends too
		return fmt.Errorf("cannot write to run %s: the caller went away: %w",
			r.info.ID, context.Cause(ctx))
	case err != nil && r.isOver():
		return r.notRunning("write to")
	case err == nil && last:
		return r.closeStdin(within)
	}
	return err
}

// inputError says what became of standard input.
func (r *liveRun) inputError(err error) error {
	switch {
	case err == nil:
		return nil
	case r.isOver(), errors.Is(err, os.ErrClosed):
		return r.notRunning("write to")
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("cannot write to run %s: nobody reads its standard input any more: %w", r.info.ID, chat.ErrWrongPhase)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("cannot write to run %s: it does not read: %w", r.info.ID, chat.ErrBusy)
	}
	return fmt.Errorf("cannot write to run %s: %w", r.info.ID, err)
}

// openStdin opens the end to write to, without waiting. For a background run that is the fifo,
// which is root's, in a directory of root's: another chatd may have started the run. The receiver
// of the file changes nothing of what chatd-root has: flags belong to one opening (fcntl(2)).
func (r *liveRun) openStdin() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOver() {
		return nil, r.notRunning("write to")
	}
	name := filepath.Join(r.dir, "stdin")
	var f *os.File
	var err error
	switch {
	case r.info.Background:
		f, err = os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
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
	raw, err := w.SyscallConn()
	if err != nil {
		return nil, err
	}
	if raw.Control(func(fd uintptr) {
		f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|unix.O_NONBLOCK, 0)
	}) != nil {
		return nil, os.ErrClosed
	}
	return f, err
}

func (r *liveRun) noStdin() error {
	return fmt.Errorf("cannot write to run %s: its standard input is not open (open_stdin): %w", r.info.ID, chat.ErrWrongPhase)
}

// closeStdin ends standard input, unless ctx ends first. A terminal is told so instead, as by
// Ctrl-D.
func (r *liveRun) closeStdin(ctx context.Context) error {
	switch {
	case r.info.TTY != nil:
		w, err := r.openStdin()
		if err != nil {
			return err
		}
		defer w.Close()
		defer context.AfterFunc(ctx, func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })()
		_, err = w.Write(stream.EndFrame())
		return r.inputError(err)
	case r.info.Background:
		return errors.Join(r.order(supervise.OrderClose), removeFile(filepath.Join(r.dir, "stdin")))
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

func removeFile(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return nil
}
