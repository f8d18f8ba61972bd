package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

const (
	sessionLeaf = "session"
	runsDir     = "runs"
)

// Create makes the chat's tree with its memory, swap and pids limits, no CPU quota yet
// ([FS.LimitCPU]), and an empty leaf for a session. It may be called again. Limits are set again, a
// live session is left alone, and an empty leaf is made anew, since something may have been killed
// in it.
func (f *FS) Create(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	f.keepLimits(id, l)
	return f.create(id, l)
}

func (f *FS) create(id chat.ID, l chat.Limits) error {
	if err := cgroupfs.Make(f.dir(id)); err != nil {
		return err
	}
	if err := f.limit(id, l); err != nil {
		return err
	}
	if err := f.inherit(f.dir(id)); err != nil {
		return err
	}
	if err := cgroupfs.Make(f.dir(id, runsDir)); err != nil {
		return err
	}
	if err := f.inherit(f.dir(id, runsDir)); err != nil {
		return err
	}
	return freshLeaf(f.dir(id, sessionLeaf))
}

// inherit lets the leaves below dir count memory and tasks of their own. cpu is
// there for fairness: a new run has to get to its exec while the session spins.
func (f *FS) inherit(dir string) error {
	if f.mode != modeV2 {
		return nil
	}
	return enable(dir, controllers)
}

// freshLeaf leaves a leaf with somebody inside, and else makes it new. The kernel kills at birth
// who is cloned into a directory that saw cgroup.kill, and nothing tells which did.
func freshLeaf(dir string) error {
	full, err := cgroupfs.Populated(dir)
	if full || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := cgroupfs.Remove(dir); err != nil {
		return err
	}
	return cgroupfs.Make(dir)
}

// Remove takes the chat's tree away; there being none is not an error. It is
// [chat.ErrBusy] while somebody is inside: [FS.Kill] comes first.
func (f *FS) Remove(id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	dir := f.dir(id)
	full, err := cgroupfs.Populated(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if full {
		pids, err := cgroupfs.Members(dir)
		return fmt.Errorf("cannot remove the cgroup %s: the processes %v are in it: %w", dir, pids,
			errors.Join(chat.ErrBusy, err))
	}
	if f.legacy != nil {
		if err := f.legacy.remove(id); err != nil {
			return err
		}
	}
	// The cgroup2 tree goes last: IDs reads it, so a crash leaves something to find.
	if err := cgroupfs.RemoveTree(dir); err != nil {
		return err
	}
	f.forget(dir)
	return nil
}

// CreateRun makes the leaf runs/<run>, which must be new: [chat.ErrExists]
// otherwise, [chat.ErrNotFound] without the chat's tree. It takes one Start.
func (f *FS) CreateRun(id chat.ID, run string) error {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	dir := f.dir(id, runsDir, run)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = errors.Join(chat.ErrExists, err)
		}
		return fmt.Errorf("cannot create the cgroup of run %s: %w", run, cgroupfs.NotFound(err))
	}
	var err error
	if f.legacy != nil {
		err = f.legacy.createRun(id, run)
	} else {
		// One process over the limit takes the whole run: half a run is not a result.
		err = cgroupfs.Write(dir, "memory.oom.group", "1")
	}
	if err != nil {
		return errors.Join(err, cgroupfs.Remove(dir))
	}
	return nil
}

// RemoveRun takes the leaf of a run away; there being none is not an error. It is
// [chat.ErrBusy] while somebody is inside.
func (f *FS) RemoveRun(id chat.ID, run string) error {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	dir := f.dir(id, runsDir, run)
	counters, file, key := dir, "pids.events", "max"
	if f.legacy != nil {
		counters, file, key = f.legacy.dir("memory", id, run), "memory.oom_control", "oom_kill"
	}
	r := reader{}
	hits := r.passing(cgroupfs.ReadFlat(counters, file, key))
	if err := errors.Join(r.err, cgroupfs.Remove(counters)); err != nil {
		return err
	}
	if hits > 0 {
		f.mu.Lock()
		f.removed[id] += hits
		f.mu.Unlock()
	}
	if err := cgroupfs.Remove(dir); err != nil {
		return err
	}
	f.forget(dir)
	return nil
}
