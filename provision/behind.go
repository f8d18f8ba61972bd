package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// A chat can delay its own end: a process dies slowly under a quota, or sleeps in the kernel.
// chatd waits for it in the background, after the caller has its answer.

// answerPatience is how long a caller waits for the end of processes that were killed.
const answerPatience = time.Second

// behind calls work and returns its error. If work takes longer than patience, behind returns
// late: work goes on, then after runs unless it is nil, and an error is logged. Work must end
// with its context, which ends answerPatience after chatd begins to stop.
func (m *Manager) behind(about string, patience time.Duration, work, after func(context.Context) error) (late bool, err error) {
	done, left := make(chan error), make(chan struct{})
	m.runs.done.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		defer context.AfterFunc(m.runs.ctx, func() { time.AfterFunc(answerPatience, cancel) })()
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
			m.log.Error("cannot finish what its caller left", "what", about, "error", err)
		}
	})
	select {
	case err := <-done:
		return false, err
	case <-time.After(patience):
		close(left)
		return true, nil
	}
}

// endLeaf kills the leaf of a run. If its last process dies slowly, late is true and the leaf is
// removed in the background. waited is closed once the leaf's first process was reaped.
func (m *Manager) endLeaf(rec state.Record, run string, waited <-chan struct{}) (late bool, err error) {
	return m.behind("run "+run+" of chat "+string(rec.ID), answerPatience, func(ctx context.Context) error {
		err := m.groups.KillRun(ctx, rec.ID, run)
		select {
		case <-waited:
		case <-ctx.Done():
		}
		return errors.Join(err, sys.CollectOrphans(rec.UID))
	}, func(context.Context) error { return m.groups.RemoveRun(rec.ID, run) })
}
