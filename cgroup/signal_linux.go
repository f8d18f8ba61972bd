package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// SignalRun sends a signal to every process of one run but except, and SIGCONT after
// it, so that a stopped process hears of it. It returns how many there are; signal 0
// only counts them. A process that is born meanwhile may miss it: [FS.KillRun] misses
// none. Without the leaf it is [chat.ErrNotFound].
func (f *FS) SignalRun(id chat.ID, run string, sig syscall.Signal, except int) (left int, err error) {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return 0, err
	}
	dir := f.dir(id, runsDir, run)
	pids, err := members(dir)
	if err != nil {
		return 0, err
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == except || pid <= 1 })
	if sig == 0 || len(pids) == 0 {
		return len(pids), nil
	}
	return len(pids), signalMembers(dir, pids, sig)
}

// signalMembers holds each process by a descriptor and looks again whether it is still
// of the leaf: its number may have become somebody else's (pidfd_open(2)).
func signalMembers(dir string, pids []int, sig syscall.Signal) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := Hold(pid)
		if err != nil {
			return err
		}
		if fd >= 0 {
			held[pid] = fd
		}
	}
	still, err := members(dir)
	if err != nil {
		return err
	}
	var errs []error
	for pid, fd := range held {
		if !slices.Contains(still, pid) {
			continue
		}
		for _, s := range []syscall.Signal{sig, unix.SIGCONT} {
			errs = append(errs, signalHeld(fd, pid, s))
		}
	}
	return errors.Join(errs...)
}

// Hold opens a process by a descriptor, which the caller closes: its number may become
// somebody else's (pidfd_open(2)). It is -1 for a process that has ended. The kernel says
// that as ESRCH, and for a moment as EINVAL or, since Linux 6.15, ENOENT: the number is one of a
// thread then.
func Hold(pid int) (fd int, err error) {
	fd, err = unix.PidfdOpen(pid, 0)
	switch err {
	case nil:
		return fd, nil
	case unix.ESRCH, unix.EINVAL, unix.ENOENT:
		return -1, nil
	}
	return -1, fmt.Errorf("cannot hold process %d: %w", pid, err)
}

// Signal sends a signal to a process if still says, once it is held, that it is the one meant.
// One that has ended gets none, and that is no error.
func Signal(pid int, sig syscall.Signal, still func() bool) error {
	fd, err := Hold(pid)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if !still() {
		return nil
	}
	return signalHeld(fd, pid, sig)
}

func signalHeld(fd, pid int, sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return nil
}
