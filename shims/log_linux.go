package shims

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// lastTimeout is how long is waited for a reader of the last bytes.
const lastTimeout = 2 * time.Second

// runLog passes on what tmux prints to it until the pane ends.
func runLog(args []string, errs io.Writer) int {
	if len(args) > 0 {
		return fail(errs, fmt.Errorf("cannot use argument %s: log takes none: %w", chat.Quote(args[0]), chat.ErrInvalid))
	}
	// For reading too: without a reader, as while chatd is being restarted, what is in the
	// fifo would be lost and a write would end this program (fifo(7)).
	out, err := unix.Open(InsideLog, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fail(errs, fmt.Errorf("cannot open %s: %w", InsideLog, err))
	}
	if err := passOn(0, out, newBacklog(backlogSize)); err != nil {
		return fail(errs, err)
	}
	return 0
}

// passOn copies from in to out, through b. It reads whenever there is something to read.
func passOn(in, out int, b *backlog) error {
	buf := make([]byte, 64<<10)
	open, end := true, time.Time{}
	for open || b.have > 0 && time.Now().Before(end) {
		poll := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLOUT}}
		if b.have > 0 || b.lost > 0 {
			poll[1].Fd = int32(out)
		}
		wait := -1
		if !open {
			poll[0].Fd, wait = -1, 100
		}
		if _, err := unix.Poll(poll, wait); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot wait for the terminal: %w", err)
		}
		if poll[1].Revents != 0 {
			if err := b.flush(out); err != nil {
				return err
			}
		}
		if poll[0].Revents != 0 {
			n, err := unix.Read(in, buf)
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) || n == 0 && err == nil {
				open, end = false, time.Now().Add(lastTimeout)
			}
			b.add(buf[:max(0, n)])
		}
	}
	return nil
}

// flush writes as much as there is room for. A note is shorter than PIPE_BUF: all or nothing
// of it is written (pipe(7)).
func (b *backlog) flush(out int) error {
	if note := b.note(); note != nil {
		switch _, err := unix.Write(out, note); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("cannot write to %s: %w", InsideLog, err)
		}
		b.lost = 0
	}
	for b.have > 0 {
		n, err := unix.Write(out, b.next())
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return nil
		case err != nil:
			return fmt.Errorf("cannot write to %s: %w", InsideLog, err)
		}
		b.take(n)
	}
	return nil
}
