package cgroup

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
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
	pids, err := cgroupfs.Members(dir)
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
		fd, err := sys.OpenPidfd(pid)
		if err != nil {
			return err
		}
		if fd >= 0 {
			held[pid] = fd
		}
	}
	still, err := cgroupfs.Members(dir)
	if err != nil {
		return err
	}
	var errs []error
	for pid, fd := range held {
		if !slices.Contains(still, pid) {
			continue
		}
		for _, s := range []syscall.Signal{sig, unix.SIGCONT} {
			errs = append(errs, sys.SignalPidfd(fd, pid, s))
		}
	}
	return errors.Join(errs...)
}
