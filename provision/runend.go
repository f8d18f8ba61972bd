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
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// watchRun waits for the end of a background run, or ends it when its time is over or
// somebody wants it to end. When chatd ends first the run goes on.
func (m *Manager) watchRun(ctx context.Context, rec state.Record, r *liveRun, l *sys.HeldProcess) {
	defer l.Close()
	ended := l.Ended()
	timer := time.NewTimer(time.Until(r.info.StartedAt.Add(r.info.Timeout.D())))
	defer timer.Stop()
	timedOut := false
	select {
	case <-ended:
	case <-m.runs.ctx.Done():
		return
	case <-r.ctx.Done():
	case <-timer.C:
		timedOut = true
	}
	if l.Alive() {
		e := entry{run: r.info.ID, grace: r.grace}
		if err := errors.Join(m.termRun(rec, e, r.pid()), m.killRun(ctx, rec, r.info.ID)); err != nil {
			m.log.Error("cannot end a run", "chat", rec.ID, "run", r.info.ID, "err", err)
		}
		select {
		case <-ended: // it reads what is left, for a bounded time
		case <-m.runs.ctx.Done():
			return
		case <-time.After(startTimeout):
			if err := l.Signal(unix.SIGKILL); err != nil {
				m.log.Error("cannot end what minds a run", "chat", rec.ID, "run", r.info.ID, "err", err)
			}
			<-ended
		}
	}
	m.endBackground(ctx, rec, r, timedOut)
}

// endBackground records how a run ended, once its supervisor has exited, and removes its leaf.
func (m *Manager) endBackground(ctx context.Context, rec state.Record, r *liveRun, timedOut bool) {
	e, err := m.endOf(ctx, rec, r, timedOut)
	if nerr := r.note(resultFile, e); nerr != nil && !errors.Is(nerr, os.ErrNotExist) {
		err = errors.Join(err, nerr)
	}
	detail := map[string]string{"run": r.info.ID, "state": string(e.State), "exit": fmt.Sprint(e.Result.Exit), "signal": e.Result.Signal}
	if e.Result.EndedBy != "" {
		detail["ended_by"] = string(e.Result.EndedBy)
	}
	m.store.Touch(rec.ID, e.At)
	r.finish(&e)
	if err := m.auditOutcome(ctx, rec, "run", detail, err); err != nil {
		m.log.Error("cannot audit the end of a run", "chat", rec.ID, "run", r.info.ID, "err", err)
	}
	m.keepSome(r.chat)
	m.forgetLater(r, e.At)
}

// endOf reads the end of a run from its supervisor's file and its leaf.
func (m *Manager) endOf(ctx context.Context, rec state.Record, r *liveRun, timedOut bool) (endedRun, error) {
	e := endedRun{State: chat.RunLost, At: time.Now().UTC(), Result: chat.RunResult{Exit: -1, TimedOut: timedOut}}
	if f, err := os.Open(filepath.Join(r.dir, "end")); err == nil {
		if said, ok := supervise.ReadEnd(f); ok {
			status := unix.WaitStatus(said.Status)
			e.State, e.At = chat.RunEnded, said.At
			e.Tail = said.Tail[:min(len(said.Tail), supervise.MaxTail)]
			e.Result.TimedOut = timedOut || said.TimedOut
			if status.Signaled() {
				e.Result.Signal = sys.SignalName(status.Signal())
			} else {
				e.Result.Exit = status.ExitStatus()
			}
		}
		f.Close()
	}
	e.Result.WallMS = e.At.Sub(r.info.StartedAt).Milliseconds()
	err := errors.Join(m.killRun(ctx, rec, r.info.ID), sys.CollectOrphans(rec.UID))
	usage, uerr := m.groups.RunUsage(rec.ID, r.info.ID)
	e.Result.CPUMS, e.Result.MemoryPeak = usage.CPU.D().Milliseconds(), usage.MemoryPeak
	m.explain(rec, r, &e.Result, usage.OOMKills)
	if errors.Is(uerr, chat.ErrNotFound) {
		uerr = nil // the session ended with it, and took the leaf
	}
	oerr := r.addCounts(&e.Result)
	return e, errors.Join(err, uerr, oerr, m.groups.RemoveRun(rec.ID, r.info.ID))
}

// addCounts says how much was printed.
func (r *liveRun) addCounts(res *chat.RunResult) error {
	for name, to := range map[string]*int64{chat.Stdout: &res.StdoutBytes, chat.Stderr: &res.StderrBytes} {
		f, err := r.openStream(name)
		if errors.Is(err, chat.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		total, missed, err := stream.NewFile(f, r.info.OutputMax).Counts()
		f.Close()
		if err != nil {
			return err
		}
		*to = total + missed
		res.Truncated = res.Truncated || missed > 0 || total > r.outputMax()
	}
	return nil
}

// forgetLater forgets a run that has ended when its time is over, if chatd is still there then;
// one that comes later does.
func (m *Manager) forgetLater(r *liveRun, ended time.Time) {
	time.AfterFunc(time.Until(ended.Add(chat.RunRetention)), func() {
		if m.runs.ctx.Err() == nil {
			m.report("the run "+r.info.ID, m.dropRun(r))
		}
	})
}

// dropRun forgets a background run and removes its files.
func (m *Manager) dropRun(r *liveRun) error {
	m.forgetRun(r)
	parent := filepath.Dir(r.dir)
	if err := trees.Remove(parent, r.info.ID); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// keepSome forgets the oldest runs of a chat that have ended, as far as they hold more than
// [chat.MaxRetainedOutput], or are more than [chat.MaxRuns].
func (m *Manager) keepSome(id chat.ID) {
	all := m.runsOf(id)
	kept, n := int64(0), 0
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		if !r.info.Background || !r.isOver() {
			continue
		}
		kept += int64(r.kept())
		if n++; n > 1 && (kept > chat.MaxRetainedOutput || n > chat.MaxRuns) {
			m.report("the run "+r.info.ID, m.dropRun(r))
		}
	}
}

// removeRuns is the runs' part in a reap: nobody is inside any more, and what minds them
// ends too before their files go.
func (m *Manager) removeRuns(ctx context.Context, rec state.Record) error {
	for _, r := range m.runsOf(rec.ID) {
		r.end()
		if !r.info.Background {
			continue
		}
		select {
		case <-r.over:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the end of run %s: %w", r.info.ID, context.Cause(ctx))
		}
		m.forgetRun(r)
	}
	if _, err := os.Lstat(m.paths.runs); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return trees.Remove(m.paths.runs, string(rec.ID))
}
