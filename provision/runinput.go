package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
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
	w, done, err := r.openStdin()
	if err != nil {
		return err
	}
	defer done()
	if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("cannot resize run %s: %w", r.info.ID, err)
	}
	_, err = w.Write(shims.SizeFrame(size.Rows, size.Cols))
	return errors.Join(r.inputError(err), w.SetWriteDeadline(time.Time{}))
}

// WriteStdin sends body to the standard input of a run that has it open, as fast as the run
// reads, and closes it then if last is set. When the run ends first it is [chat.ErrWrongPhase],
// and body is closed, so that nobody waits for more of it.
func (m *Manager) WriteStdin(ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool) error {
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
	n, err := r.copyStdin(ctx, body, last)
	m.touch(rec)
	detail["bytes"] = fmt.Sprint(n)
	return errors.Join(err, m.auditOutcome(ctx, rec, "stdin", detail, err))
}

func (r *liveRun) copyStdin(ctx context.Context, body io.ReadCloser, last bool) (n int64, err error) {
	w, done, err := r.openStdin()
	if err != nil {
		return 0, err
	}
	defer done()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // neither a run that is over nor a caller who is gone is waited for
		select {
		case <-r.over:
		case <-ctx.Done():
		case <-stop:
			return
		}
		_ = body.Close()
		_ = w.SetWriteDeadline(time.Unix(1, 0))
	}()
	to := io.Writer(w)
	if r.info.TTY != nil {
		to = shims.InputFrames(w)
	}
	n, err = io.CopyBuffer(onlyWriter{to}, onlyReader{body}, make([]byte, 32<<10))
	switch {
	case ctx.Err() != nil && !r.isOver(): // with a body of net/http that is closed its context ends too
		return n, fmt.Errorf("cannot write to run %s: the caller went away: %w", r.info.ID, context.Cause(ctx))
	case err != nil:
		return n, r.inputError(err)
	case last:
		err = r.closeStdin(w)
	}
	return n, err
}

type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

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

// openStdin is the end to write to: of a run of the background, which another chatd may have
// started, the fifo. It is root's, in a directory of root's, and opened without waiting.
func (r *liveRun) openStdin() (w *os.File, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isOver() {
		return nil, nil, r.notRunning("write to")
	}
	if r.info.Background {
		f, err := os.OpenFile(filepath.Join(r.dir, "stdin"), os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil, r.noStdin()
		}
		if err != nil {
			return nil, nil, r.inputError(err)
		}
		return f, func() { f.Close() }, nil
	}
	if r.stdin == nil {
		return nil, nil, r.noStdin()
	}
	return r.stdin, func() {}, nil
}

func (r *liveRun) noStdin() error {
	return fmt.Errorf("cannot write to run %s: its standard input is not open (open_stdin): %w", r.info.ID, chat.ErrWrongPhase)
}

// closeStdin ends standard input. A terminal is told so instead, as by Ctrl-D.
func (r *liveRun) closeStdin(w *os.File) error {
	switch {
	case r.info.TTY != nil:
		_, err := w.Write(shims.EndFrame())
		return r.inputError(err)
	case r.info.Background:
		return errors.Join(r.order(supervise.OrderClose), removeFile(filepath.Join(r.dir, "stdin")))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stdin = nil
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
