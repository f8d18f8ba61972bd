package sys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process, also in the records that an earlier daemon left. The kernel
// reuses pids, so it adds the start time in clock ticks since boot (proc_pid_stat(5), field 22)
// and the boot.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Age is how long ago the process was started, by a clock that nobody sets.
func (p Process) Age() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // it fails only where there is no such clock
	return time.Duration(now.Nano()) - time.Duration(p.Start)*tick
}

// ProcessHandle is a process with an open pidfd, which never refers to another process
// (pidfd_open(2)). It is for a process that the caller waits for; [OpenPidfd] is for one signal.
type ProcessHandle struct {
	Process
	fd *os.File
}

// OpenProcess opens a pidfd of p and checks the start time. Without a start time p is a child
// of this daemon: its pid is not reused before the daemon has waited for it.
func OpenProcess(p Process) (*ProcessHandle, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot hold process %d: %w", p.PID, err)
	}
	held := &ProcessHandle{Process: p, fd: os.NewFile(uintptr(fd), "pidfd")}
	st, err := ReadStat(p.PID)
	switch {
	case err != nil:
	case p.Start != 0 && p.Start != st.Start:
		err = fmt.Errorf("cannot hold process %d: it started at tick %d, want %d",
			p.PID, st.Start, p.Start)
	case p.Start != 0 && !held.Alive():
		err = fmt.Errorf("cannot hold process %d: it has ended", p.PID)
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	held.Start = st.Start
	return held, nil
}

// Close closes the pidfd; the process lives on.
func (p *ProcessHandle) Close() error { return p.fd.Close() }

// Alive reports whether the process has not ended. A pidfd becomes readable when it does
// (pidfd_open(2)).
func (p *ProcessHandle) Alive() bool {
	ended := true
	_ = OnDescriptor(p.fd, func(fd int) error { // an error means that p was closed
		ended = pollIn(fd)
		return nil
	})
	return !ended
}

// Ending reports whether the process has ended or is exiting: its namespace's other processes
// end before it does.
func (p *ProcessHandle) Ending() bool {
	st, err := ReadStat(p.PID)
	// Alive comes after the read: while the process lives, no other has its pid.
	return !p.Alive() || err == nil && st.Flags&Exiting != 0
}

// Wait returns when the process has ended or p was closed. It waits in the runtime's poller: a
// process that is waited for costs no thread of the daemon.
func (p *ProcessHandle) Wait() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return pollIn(int(fd)) })
}

// Ended returns a channel that is closed when the process has ended or p was closed.
func (p *ProcessHandle) Ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Wait() // an error means that p was closed
	}()
	return done
}

// WaitExit waits for the end of a pid namespace's first process, whose processes of uid were
// killed. Meanwhile it reaps the daemon's own orphaned children ([CollectOrphans]), because a pid
// namespace ends only when its last process has been reaped. The host's init reaps what an earlier
// daemon started.
func (p *ProcessHandle) WaitExit(ctx context.Context, uid uint32) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := CollectOrphans(uid); err != nil {
			return err
		}
		if !p.Alive() {
			return CollectOrphans(uid)
		}
		select {
		case <-ctx.Done():
			why := context.Cause(ctx)
			return fmt.Errorf("cannot wait for the end of process %d: %w", p.PID, why)
		case <-time.After(pause):
		}
	}
}

// Signal sends the process a signal (pidfd_send_signal(2)); one that has ended is not an error. A p
// that was closed is [os.ErrClosed].
func (p *ProcessHandle) Signal(sig syscall.Signal) error {
	return OnDescriptor(p.fd, func(fd int) error { return SignalPidfd(fd, p.PID, sig) })
}

func pollIn(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	for err == unix.EINTR { // also without a wait, where a signal of the runtime is pending
		n, err = unix.Poll(poll, 0)
	}
	return err == nil && n > 0
}
