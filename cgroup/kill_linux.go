package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Kill ends every process of the chat, double forks and new sessions too, and
// returns when none is left (cgroup.kill of the kernel's cgroup-v2.rst). There
// being no tree is not an error. The session leaf goes with its processes. When ctx
// ends first the error is [chat.ErrBusy] and names who is left. The CPU quota is
// lifted, or a chat that used it up would take seconds to die; [FS.LimitCPU] sets
// it again.
func (f *FS) Kill(ctx context.Context, id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := f.doom(id); err != nil {
		return err
	}
	lift := func() error {
		defer f.lock(id).Unlock()
		f.mu.Lock()
		delete(f.lent, id) // for good
		f.mu.Unlock()
		return f.lift(id, isAny)
	}
	if err := cgroupfs.Kill(ctx, f.dir(id), lift, nil); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return cgroupfs.Remove(f.dir(id, sessionLeaf))
}

// doom remembers the chat's runs as killed.
func (f *FS) doom(id chat.ID) error {
	defer f.lock(id).Unlock()
	runs, err := f.Runs(id)
	for _, run := range runs {
		f.markKilled(f.dir(id, runsDir, run))
	}
	return err
}

// KillRun ends every process of one run as [FS.Kill] does. The leaf stays for [FS.RunUsage], until
// [FS.RemoveRun]. For a leaf that takes long to die the chat has a whole CPU for a second, and
// again after ten, and no bound on block I/O. The dying need CPU time to die, and end after the I/O
// that they asked for.
func (f *FS) KillRun(ctx context.Context, id chat.ID, run string) error {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return err
	}
	dir := f.dir(id, runsDir, run)
	f.markKilled(dir)
	err := cgroupfs.Kill(ctx, dir, nil, func() error { return f.lendCPU(id) })
	if _, serr := os.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
		f.forget(dir)
	}
	return err
}

// Members lists the pids of all processes of the chat, as seen from this process's
// pid namespace; [chat.ErrNotFound] without the chat's tree.
func (f *FS) Members(id chat.ID) ([]int, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return cgroupfs.Members(f.dir(id))
}

// Processes lists them with the run that each is of; empty is the session's own leaf.
func (f *FS) Processes(id chat.ID) (map[int]string, error) {
	all, err := f.Members(id)
	if err != nil {
		return nil, err
	}
	of := map[int]string{}
	for _, pid := range all {
		of[pid] = ""
	}
	runs, err := f.Runs(id)
	for _, run := range runs {
		pids, merr := cgroupfs.Members(f.dir(id, runsDir, run))
		if !errors.Is(merr, chat.ErrNotFound) { // the run may have ended
			err = errors.Join(err, merr)
		}
		for _, pid := range pids {
			of[pid] = run
		}
	}
	return of, err
}

// markKilled remembers that dir saw cgroup.kill: nobody can be born there again.
func (f *FS) markKilled(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead[dir] = true
}

// forget drops what was remembered of dir and below.
func (f *FS) forget(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := range f.dead {
		if d == dir || strings.HasPrefix(d, dir+"/") {
			delete(f.dead, d)
		}
	}
	if id, ok := f.idOf(filepath.Base(dir)); ok && filepath.Dir(dir) == f.bases.Unified {
		delete(f.births, id)
		delete(f.lent, id)
		delete(f.limits, id)
		delete(f.removed, id)
		delete(f.gates, id)
	}
}

func (f *FS) isDead(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead[dir]
}
