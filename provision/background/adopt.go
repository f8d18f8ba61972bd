package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
)

// bootID is that of this boot.
var bootID = sync.OnceValues(sys.BootID)

// Adopt registers the background runs of a chat that an earlier chatd started, and returns them.
// Each that is not over goes on, or has ended meanwhile: the caller watches it. Adopt removes the
// files of runs that never began, are of another boot, or ended longer ago than
// [chat.RunRetention]. It kills the leaf of every other run: no caller waits for it.
func (a *Runs) Adopt(ctx context.Context, id chat.ID, owner string, uid uint32) ([]*Run, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	var runs []*Run
	var errs []error
	parent := filepath.Join(a.opt.Dir, string(id))
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, fmt.Errorf("cannot list %s: %w", parent, err))
	}
	for _, e := range entries {
		r := a.readRun(About{Chat: id, Owner: owner, UID: uid}, e.Name(), boot)
		if r == nil {
			// Its supervisor, if any, is still in the run's leaf, which is killed next.
			errs = append(errs, safefs.Remove(parent, e.Name()))
			continue
		}
		a.mu.Lock()
		a.add(r)
		a.mu.Unlock()
		runs = append(runs, r)
		if r.supervisor != nil {
			r.free(ctx)
			a.log.Info("adopted a run", "chat", id, "run", r.Info.ID)
		}
	}
	return runs, errors.Join(append(errs, a.endStray(ctx, id))...)
}

// readRun reads the files of one run, and holds its supervisor if that is alive. It returns nil
// for a run that never began, is of another boot, or is too old.
func (a *Runs) readRun(about About, name, boot string) *Run {
	dir := filepath.Join(a.opt.Dir, string(about.Chat), name)
	n := savedRun{About: about}
	switch err := load(dir, runFile, &n); {
	case err != nil, n.Info.ID != name, n.Supervisor.Boot != boot, n.Supervisor.Start == 0:
		return nil
	case !n.Info.Background, n.Info.OutputMax == 0, chat.CheckOutputMax(n.Info.OutputMax) != nil:
		return nil // no chatd writes such a record
	}
	r := a.newRun(n.About)
	r.nsenter, r.adopted = n.NSEnter, true
	var e End
	if load(dir, resultFile, &e) == nil {
		if time.Since(e.At) > chat.RunRetention {
			return nil
		}
		r.finish(&e)
		return r
	}
	if l, err := a.openSupervisor(n.Supervisor); err == nil {
		r.supervisor = l // else it has ended, and has written its end
	}
	return r
}

// openSupervisor opens a supervisor's pidfd and checks its start time and uid. The uid is root's
// until the supervisor has started the command.
func (a *Runs) openSupervisor(p sys.Process) (*sys.ProcessHandle, error) {
	l, err := sys.OpenProcess(p)
	if err != nil {
		return nil, err
	}
	if uid, err := sys.UIDOf(p.PID); err != nil || uid != a.opt.UID {
		return nil, errors.Join(fmt.Errorf("cannot adopt process %d: it is of uid %d: %w",
			p.PID, uid, chat.ErrWrongPhase), err, l.Close())
	}
	return l, nil
}

// free moves a supervisor out of the leaf in which a crash left it. The supervisor is a child of
// the host's init: its pid is valid only while it is alive in the chat's cgroup.
func (r *Run) free(ctx context.Context) {
	inside, err := r.in.opt.Groups.Members(r.Chat)
	switch {
	case err != nil && !errors.Is(err, chat.ErrNotFound):
	case slices.Contains(inside, r.supervisor.PID) && r.supervisor.Alive():
		err = r.releaseSupervisor(ctx)
	default:
		err = r.order(plan.OrderGo)
	}
	if err != nil && !errors.Is(err, chat.ErrWrongPhase) {
		r.logError("cannot take the supervisor of a run out of its leaf", err)
	}
}

// Supervised reports whether a background run had a supervisor when it was adopted.
func (r *Run) Supervised() bool { return r.supervisor != nil }

// endStray kills each leaf of a chat that belongs to no run here.
func (a *Runs) endStray(ctx context.Context, id chat.ID) error {
	leaves, err := a.opt.Groups.Runs(id)
	if err != nil {
		return err
	}
	var errs []error
	for _, run := range leaves {
		if _, err := a.Find(id, run); err != nil {
			leaf := session.Leaf{Groups: a.opt.Groups, Chat: id, Run: run}
			errs = append(errs, leaf.Kill(ctx), leaf.Remove())
		}
	}
	return errors.Join(errs...)
}

// RemoveOthers removes the files of unknown chats.
func (a *Runs) RemoveOthers(known func(chat.ID) bool) error {
	entries, err := os.ReadDir(a.opt.Dir)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", a.opt.Dir, err)
	}
	var errs []error
	for _, e := range entries {
		if !known(chat.ID(e.Name())) {
			errs = append(errs, safefs.Remove(a.opt.Dir, e.Name()))
		}
	}
	return errors.Join(errs...)
}
