package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/state"
)

// A chat can hold up its own end: what dies slowly under a quota, or sleeps in the kernel,
// is waited for behind its caller, who has the answer by then.

// answerPatience is how long a caller waits for the end of what was killed.
const answerPatience = time.Second

// behind does work and returns its error. When that is not done within patience, late is true:
// the caller goes on, and work is followed by after, if that is not nil, and logged. Work has
// to end when its context does, which is soon after chatd begins to.
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

// endLeaf kills the leaf of a run. Where the last of it dies slowly late is true, and the leaf is
// removed behind the caller. waited is closed when its first process was waited for.
func (m *Manager) endLeaf(rec state.Record, run string, waited <-chan struct{}) (late bool, err error) {
	return m.behind("run "+run+" of chat "+string(rec.ID), answerPatience, func(ctx context.Context) error {
		err := m.groups.KillRun(ctx, rec.ID, run)
		select {
		case <-waited:
		case <-ctx.Done():
		}
		return errors.Join(err, collectOrphans(rec.UID))
	}, func(context.Context) error { return m.groups.RemoveRun(rec.ID, run) })
}
