package sys

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenPidfd opens a process by a descriptor, which the caller closes: its pid may be reused
// (pidfd_open(2)). It is -1 for a process that has ended. The kernel says that as ESRCH, and for a
// moment as EINVAL or, since Linux 6.15, ENOENT: the number is one of a thread then.
func OpenPidfd(pid int) (fd int, err error) {
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
// One that has ended gets none, and that is not an error.
func Signal(pid int, sig syscall.Signal, still func() bool) error {
	fd, err := OpenPidfd(pid)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if !still() {
		return nil
	}
	return SignalPidfd(fd, pid, sig)
}

// SignalPidfd signals a process that [OpenPidfd] opened; one that has ended meanwhile is not an error.
func SignalPidfd(fd, pid int, sig syscall.Signal) error {
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return nil
}

// SignalName is the name of a signal, as "SIGKILL" (signal(7)).
func SignalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("SIG%d", int(s))
}
