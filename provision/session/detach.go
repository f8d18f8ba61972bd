package session

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A chat can delay its own end: a process dies slowly under a quota, or sleeps in the kernel.
// chatd answers the caller and waits for it in the background.

// answerTimeout is how long a caller waits for the end of processes that were killed, and how long
// work goes on after [Later.Close].
const answerTimeout = time.Second

// Later finishes work that its caller no longer waits for.
type Later struct {
	log  *slog.Logger
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	done sync.WaitGroup
}

// NewLater returns a Later without work. Errors of work that was left go to log.
func NewLater(log *slog.Logger) *Later {
	l := &Later{log: log}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Close ends the context of all work within a second, and returns when all work has ended.
func (l *Later) Close() {
	l.stop()
	l.done.Wait()
}

// Do calls work and returns its error. If work takes longer than timeout, Do returns late: work
// goes on, then after runs unless it is nil, and an error is logged. Work must end with its
// context; about names it in the log.
func (l *Later) Do(
	about string, timeout time.Duration, work, after func(context.Context) error,
) (late bool, err error) {
	done, left := make(chan error), make(chan struct{})
	l.done.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer context.AfterFunc(l.ctx, func() { time.AfterFunc(answerTimeout, cancel) })()
		err := work(ctx)
		select {
		case done <- err:
			return
		case <-left:
		}
		if err == nil && after != nil {
			err = after(ctx)
		}
		if err != nil {
			l.log.Error("cannot finish what its caller left", "what", about, "error", err)
		}
	})
	select {
	case err := <-done:
		return false, err
	case <-time.After(timeout):
		close(left)
		return true, nil
	}
}
