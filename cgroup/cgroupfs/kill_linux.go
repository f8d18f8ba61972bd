package cgroupfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Kill ends every process in dir and below (cgroup.kill of cgroup-v2.rst). It kills again every
// 100 ms until the tree is empty: somebody may have been moved in after the kill. When ctx ends
// first the error is [chat.ErrBusy] and names who is left. after, if any, is called once all are
// doomed, and slow each time that some are left after 100 ms.
func Kill(ctx context.Context, dir string, after, slow func() error) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot watch the cgroup %s: %w", dir, err)
	}
	defer events.Close()
	for {
		if err := Write(dir, "cgroup.kill", "1"); err != nil {
			return skipNotFound(err)
		}
		if after != nil {
			if err := skipNotFound(after()); err != nil {
				return err
			}
			after = nil
		}
		empty, err := waitEmpty(ctx, events, 100*time.Millisecond)
		if err != nil {
			pids, merr := Members(dir)
			return fmt.Errorf("cannot kill the cgroup %s: the processes %v are left: %w",
				dir, pids, errors.Join(chat.ErrBusy, err, merr))
		}
		if empty {
			return nil
		}
		if slow != nil {
			if err := skipNotFound(slow()); err != nil {
				return err
			}
		}
	}
}

func skipNotFound(err error) error {
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	return err
}

// waitEmpty waits at most d, and less when ctx ends, for populated 0 in an open cgroup.events. The
// kernel wakes poll(2) with POLLPRI on every change.
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
