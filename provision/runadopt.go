package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/supervise"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// adoptRuns finds the runs of an earlier chatd: those of the background go on, or have ended
// meanwhile, and what else is in a leaf of a run nobody waits for.
func (m *Manager) adoptRuns(ctx context.Context) error {
	chats, err := os.ReadDir(m.paths.runs)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", m.paths.runs, err)
	}
	var errs []error
	for _, c := range chats {
		rec, err := m.store.Get(chat.ID(c.Name()))
		if errors.Is(err, chat.ErrNotFound) {
			errs = append(errs, trees.Remove(m.paths.runs, c.Name()))
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, m.adoptRunsOf(ctx, rec))
	}
	for _, rec := range m.store.All() {
		errs = append(errs, m.endStrayRuns(ctx, rec))
	}
	return errors.Join(errs...)
}

func (m *Manager) adoptRunsOf(ctx context.Context, rec state.Record) error {
	parent := filepath.Join(m.paths.runs, string(rec.ID))
	runs, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", parent, err)
	}
	var errs []error
	for _, run := range runs {
		if m.adoptRun(ctx, rec, filepath.Join(parent, run.Name())) {
			continue
		}
		// Its supervisor, if any, is still in the run's leaf, which is killed next.
		errs = append(errs, trees.Remove(parent, run.Name()))
	}
	return errors.Join(errs...)
}

// adoptRun takes over one run; false is one that was never under way, or is of another boot, or too
// old.
func (m *Manager) adoptRun(ctx context.Context, rec state.Record, dir string) bool {
	var n runNote
	if err := readNote(dir, noteFile, &n); err != nil || n.Run.ID != filepath.Base(dir) || n.Supervisor.Boot != m.boot || n.Supervisor.Start == 0 {
		return false
	}
	if chat.CheckOutputMax(n.Run.OutputMax) != nil {
		return false // no chatd wrote that
	}
	r := newLiveRun(rec.ID, n.Run, n.Grace)
	r.owner, r.dir, r.nsenter, r.taken, r.refused = rec.Owner, dir, n.NSEnter, n.Taken, n.Refused
	ctx = asSchedule(ctx, byClock{n.Run.Schedule, n.Taken})
	var e endedRun
	if readNote(dir, resultFile, &e) == nil {
		if time.Since(e.At) > chat.RunRetention {
			return false
		}
		r.finish(&e)
		m.forgetLater(r, e.At)
	}
	m.runs.mu.Lock()
	m.runs.keep(r)
	m.runs.mu.Unlock()
	if r.isOver() {
		return true
	}
	l, err := m.holdSupervisor(n.Supervisor)
	if err != nil { // it has ended, and wrote down how
		m.endBackground(ctx, rec, r, false)
		return true
	}
	if err := m.freeAdopted(ctx, rec, r, l); err != nil && !errors.Is(err, chat.ErrWrongPhase) {
		m.log.Error("cannot take what minds a run out of its leaf", "chat", rec.ID, "run", r.info.ID, "err", err)
	}
	m.log.Info("adopted a run", "chat", rec.ID, "run", r.info.ID)
	ctx = context.WithoutCancel(ctx)
	m.runs.done.Go(func() { m.watchRun(ctx, rec, r, l) })
	return true
}

// freeAdopted moves a supervisor out of the leaf in which a crash left it. The supervisor is a
// child of the host's init: its pid is valid only while it is alive in the chat's cgroup.
func (m *Manager) freeAdopted(ctx context.Context, rec state.Record, r *liveRun, l *sys.HeldProcess) error {
	inside, err := m.groups.Members(rec.ID)
	if err != nil && !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	if slices.Contains(inside, l.PID) && l.Alive() {
		return m.releaseSupervisor(ctx, r, l)
	}
	return r.order(supervise.OrderGo)
}

// holdSupervisor opens a supervisor's pidfd and checks its start time and uid. The uid is root's
// until the supervisor has started the command.
func (m *Manager) holdSupervisor(p sys.Process) (*sys.HeldProcess, error) {
	l, err := sys.HoldProcess(p)
	if err != nil {
		return nil, err
	}
	if uid, err := sys.UIDOf(p.PID); err != nil || uid != m.probeUID() {
		return nil, errors.Join(fmt.Errorf("cannot adopt process %d: it is of uid %d: %w", p.PID, uid, chat.ErrWrongPhase), err, l.Close())
	}
	return l, nil
}

// endStrayRuns kills each leaf that belongs to no background run: no caller waits for it.
func (m *Manager) endStrayRuns(ctx context.Context, rec state.Record) error {
	leaves, err := m.groups.Runs(rec.ID)
	if err != nil {
		return err
	}
	var known []string
	for _, r := range m.runsOf(rec.ID) {
		known = append(known, r.info.ID)
	}
	var errs []error
	for _, leaf := range leaves {
		if !slices.Contains(known, leaf) {
			errs = append(errs, m.killRun(ctx, rec, leaf), m.groups.RemoveRun(rec.ID, leaf))
		}
	}
	return errors.Join(errs...)
}
