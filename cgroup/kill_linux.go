package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// Kill ends every process of the chat, double forks and new sessions too, and
// returns when none is left (cgroup.kill of the kernel's cgroup-v2.rst). There
// being no tree is no error. The session leaf goes with its processes. When ctx
// ends first the error is [chat.ErrBusy] and names who is left. The CPU quota is
// lifted, or a chat that used it up would take seconds to die; [FS.LimitCPU] sets
// it again.
func (f *FS) Kill(ctx context.Context, id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return f.kill(ctx, id)
}

func (f *FS) kill(ctx context.Context, id chat.ID) error {
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
	if err := killTree(ctx, f.dir(id), lift, nil); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return rmdir(f.dir(id, sessionLeaf))
}

// doom remembers the chat's runs as killed.
func (f *FS) doom(id chat.ID) error {
	defer f.lock(id).Unlock()
	runs, err := os.ReadDir(f.dir(id, runsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list the runs of chat %s: %w", id, err)
	}
	for _, r := range runs {
		if r.IsDir() {
			f.markKilled(f.dir(id, runsDir, r.Name()))
		}
	}
	return nil
}

// KillRun ends every process of one run as [FS.Kill] does. The leaf stays for
// [FS.RunUsage], until [FS.RemoveRun]. For a leaf that takes long to die the chat has
// a whole CPU for a second, and again after ten, and no bound on block I/O: the
// dying need CPU time to die, and end after the I/O that they asked for.
func (f *FS) KillRun(ctx context.Context, id chat.ID, run string) error {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return err
	}
	dir := f.dir(id, runsDir, run)
	f.markKilled(dir)
	err := killTree(ctx, dir, nil, func() error { return f.lendCPU(id) })
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
	return members(f.dir(id))
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
		pids, merr := members(f.dir(id, runsDir, run))
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
		delete(f.refusals, id)
	}
}

func (f *FS) isDead(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead[dir]
}

// killTree kills again every 100 ms until the tree is empty: somebody may have
// been moved in after the kill. after, if any, is called once all are doomed, and slow
// each time that some are left after 100 ms.
func killTree(ctx context.Context, dir string, after, slow func() error) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot watch the cgroup %s: %w", dir, err)
	}
	defer events.Close()
	for {
		if err := write(dir, "cgroup.kill", "1"); err != nil {
			if errors.Is(err, chat.ErrNotFound) || errors.Is(err, unix.ENODEV) {
				return nil
			}
			return err
		}
		if after != nil {
			if err := after(); err != nil && !errors.Is(err, chat.ErrNotFound) {
				return err
			}
			after = nil
		}
		empty, err := waitEmpty(ctx, events, 100*time.Millisecond)
		if err != nil {
			pids, merr := members(dir)
			return fmt.Errorf("cannot kill the cgroup %s: the processes %v are left: %w", dir, pids, errors.Join(chat.ErrBusy, err, merr))
		}
		if empty {
			return nil
		}
		if slow != nil {
			if err := slow(); err != nil && !errors.Is(err, chat.ErrNotFound) {
				return err
			}
		}
	}
}

// waitEmpty waits at most d, and less when ctx ends, for populated 0 in an open
// cgroup.events; the kernel wakes poll(2) with POLLPRI on every change.
func waitEmpty(ctx context.Context, events *os.File, d time.Duration) (bool, error) {
	end := time.Now().Add(d)
	for {
		full, err := eventsPopulated(events)
		if err != nil || !full {
			return !full, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		wait := min(left, 20*time.Millisecond) // so that ctx is looked at
		if _, err := unix.Poll(fds, int(wait.Milliseconds())+1); err != nil && err != unix.EINTR {
			return false, fmt.Errorf("cannot wait for a cgroup: %w", err)
		}
	}
}

func eventsPopulated(events io.ReaderAt) (bool, error) {
	buf := make([]byte, 4096)
	n, err := events.ReadAt(buf, 0)
	if errors.Is(err, unix.ENODEV) { // the cgroup was removed, so it was empty
		return false, nil
	}
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("cannot read cgroup.events: %w", err)
	}
	v, err := flat(string(buf[:n]), "populated")
	return v != 0, err
}

// populated tells whether a process is in dir or below.
func populated(dir string) (bool, error) {
	v, err := readFlat(dir, "cgroup.events", "populated")
	return v != 0, err
}

// members lists the pids in dir and below; a cgroup that goes away meanwhile has none.
func members(dir string) ([]int, error) {
	pids, err := readPids(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list a cgroup: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		more, err := members(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

// readPids reads cgroup.procs of dir itself.
func readPids(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, unix.ENODEV) {
		err = errors.Join(chat.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes of a cgroup: %w", notFound(err))
	}
	var pids []int
	for s := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("cannot list the processes of %s: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
