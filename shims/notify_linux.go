package shims

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// notifyTime bounds how long systemd may take to read its messages.
const notifyTime = 10 * time.Second

// notify sends systemd the state of this unit, with files (sd_notify(3)).
func notify(state string, files []int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return fmt.Errorf("cannot tell systemd %q: NOTIFY_SOCKET is not set: %w", state, chat.ErrUnsupported)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		var rights []byte
		if len(files) > 0 {
			rights = unix.UnixRights(files...)
		}
		err = errors.Join(unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: path},
			unix.MSG_NOSIGNAL), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("cannot tell systemd %q: %w", state, err)
	}
	return nil
}

// notifyMain makes pid the unit's main process, and returns when systemd has read the message.
// systemd attributes the message of a process that has ended to no unit.
func notifyMain(pid int) error {
	if err := notify("MAINPID="+strconv.Itoa(pid)+"\nSTATUS=the session is up", nil); err != nil {
		return err
	}
	return notifyBarrier()
}

// notifyBarrier is sd_notify_barrier(3): systemd closes the pipe that it receives once it has
// read all earlier messages.
func notifyBarrier() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("cannot wait for systemd: %w", err)
	}
	defer unix.Close(p[0])
	err := errors.Join(notify("BARRIER=1", []int{p[1]}), unix.Close(p[1]))
	if err != nil {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(p[0])}}
	for end := time.Now().Add(notifyTime); ; {
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if n == 1 {
			return nil
		}
		if err != nil && err != unix.EINTR || time.Now().After(end) {
			return fmt.Errorf("cannot wait for systemd: %w", errors.Join(err, chat.ErrBusy))
		}
	}
}
