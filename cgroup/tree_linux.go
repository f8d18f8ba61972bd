package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

const (
	sessionLeaf = "session"
	runsDir     = "runs"
)

// Create makes the chat's tree with its memory, swap and pids limits, no CPU
// quota yet ([FS.LimitCPU]), and an empty leaf for a session. It may be called
// again: limits are set again, a live session is left alone, and an empty leaf is
// made anew, since something may have been killed in it.
func (f *FS) Create(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	f.keepLimits(id, l)
	return f.create(id, l)
}

func (f *FS) create(id chat.ID, l chat.Limits) error {
	if err := mkdir(f.dir(id)); err != nil {
		return err
	}
	if err := f.limit(id, l); err != nil {
		return err
	}
	if err := f.inherit(f.dir(id)); err != nil {
		return err
	}
	if err := mkdir(f.dir(id, runsDir)); err != nil {
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

// freshLeaf leaves a leaf with somebody inside, and else makes it new: the kernel
// kills at birth who is cloned into a directory that saw cgroup.kill, and nothing
// tells which did.
func freshLeaf(dir string) error {
	full, err := populated(dir)
	if full || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := rmdir(dir); err != nil {
		return err
	}
	return mkdir(dir)
}

// Remove takes the chat's tree away; there being none is no error. It is
// [chat.ErrBusy] while somebody is inside: [FS.Kill] comes first.
func (f *FS) Remove(id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return f.remove(id)
}

func (f *FS) remove(id chat.ID) error {
	dir := f.dir(id)
	full, err := populated(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if full {
		pids, err := members(dir)
		return fmt.Errorf("cannot remove the cgroup %s: the processes %v are in it: %w", dir, pids, errors.Join(chat.ErrBusy, err))
	}
	if f.legacy != nil {
		if err := f.legacy.remove(id); err != nil {
			return err
		}
	}
	// The cgroup2 tree goes last: IDs reads it, so a crash leaves something to find.
	if err := rmTree(dir); err != nil {
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
	return f.createRun(id, run)
}

func (f *FS) createRun(id chat.ID, run string) error {
	dir := f.dir(id, runsDir, run)
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = errors.Join(chat.ErrExists, err)
		}
		return fmt.Errorf("cannot create the cgroup of run %s: %w", run, notFound(err))
	}
	var err error
	if f.legacy != nil {
		err = f.legacy.createRun(id, run)
	} else {
		// One process over the limit takes the whole run: half a run is no result.
		err = write(dir, "memory.oom.group", "1")
	}
	if err != nil {
		return errors.Join(err, rmdir(dir))
	}
	return nil
}

// RemoveRun takes the leaf of a run away; there being none is no error. It is
// [chat.ErrBusy] while somebody is inside.
func (f *FS) RemoveRun(id chat.ID, run string) error {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	dir := f.dir(id, runsDir, run)
	if f.legacy != nil {
		if err := f.legacy.removeRun(id, run); err != nil {
			return err
		}
	}
	r := reader{}
	refused := r.passing(readFlat(dir, "pids.events", "max"))
	if err := errors.Join(r.err, rmdir(dir)); err != nil {
		return err
	}
	f.forget(dir)
	if refused > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refusals[id] += refused
	}
	return nil
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create a cgroup: %w", err)
	}
	return nil
}

// rmdirTimeout is for the last process of a cgroup, which has ended and still leaves it: a
// host that is very busy lets it wait for its turn.
const rmdirTimeout = 10 * time.Second

// rmdir removes one empty cgroup. The last process leaves a moment after it is
// seen to be gone, so EBUSY counts only while it stays.
func rmdir(dir string) error {
	err := unix.Rmdir(dir)
	end := time.Now().Add(rmdirTimeout)
	for wait := time.Millisecond; err == unix.EBUSY && time.Now().Before(end); wait = min(2*wait, 100*time.Millisecond) {
		if full, perr := populated(dir); full || perr != nil && !errors.Is(perr, fs.ErrNotExist) {
			break
		}
		time.Sleep(wait)
		err = unix.Rmdir(dir)
	}
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EBUSY:
		return fmt.Errorf("cannot remove the cgroup %s: %w", dir, errors.Join(chat.ErrBusy, err))
	}
	return fmt.Errorf("cannot remove the cgroup %s: %w", dir, err)
}

// rmTree removes a cgroup and those below it, the deepest first. Only
// directories: the files of a cgroup go with it.
func rmTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list a cgroup: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := rmTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return rmdir(dir)
}

// write writes one value to a file of a cgroup, never making the file.
func write(dir, file, value string) error {
	w, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot open a cgroup file: %w", notFound(err))
	}
	_, err = w.WriteString(value)
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("cannot write %q to a cgroup file: %w", value, err)
	}
	return nil
}
