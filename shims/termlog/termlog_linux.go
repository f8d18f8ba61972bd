package termlog

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// init is the whole program if chatd-shim is called with the argument log. Of the packages whose
// imports are initialized, Go initializes the first by import path (The Go Programming Language
// Specification, Package initialization). This package imports little, not even golang.org/x/sys.
// So it comes before the tables of the other modes: half a megabyte, which each awake chat would
// keep as long as its session lasts.
func init() {
	args := os.Args
	if len(args) != 3 || !strings.HasSuffix(args[0], "/chatd-shim") || args[1] != "log" {
		return
	}
	if err := run(args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "chatd-shim: %v\n", err)
		os.Exit(125)
	}
	os.Exit(0)
}

// run copies standard input, to which tmux writes, to the fifo until the pane ends.
func run(fifo string) error {
	// For reading too: without a reader, as while chatd restarts, the fifo would lose its content
	// and a write would end this program (fifo(7)).
	out, err := syscall.Open(fifo, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", fifo, err)
	}
	return passOn(0, out, newBacklog(backlogSize))
}

// lastTimeout bounds the wait for a reader of the last bytes.
const lastTimeout = 2 * time.Second

// pieceSize bounds what is read at once, in bytes.
const pieceSize = 64 << 10

// passOn copies from in to out, through b. It reads whenever there is something to read.
func passOn(in, out int, b *backlog) error {
	buf := make([]byte, pieceSize)
	open, end := true, time.Time{}
	for open || b.Len() > 0 && time.Now().Before(end) {
		ready := [2]pollFd{{fd: int32(in), events: pollIn}, {fd: -1, events: pollOut}}
		if b.Len() > 0 || b.lost > 0 {
			ready[1].fd = int32(out)
		}
		var wait *syscall.Timespec
		if !open {
			ready[0].fd, wait = -1, &syscall.Timespec{Nsec: 100e6}
		}
		if err := poll(&ready, wait); err != 0 && err != syscall.EINTR {
			return fmt.Errorf("cannot wait for the terminal: %w", err)
		}
		if ready[1].revents != 0 {
			if err := b.flush(out); err != nil {
				return err
			}
		}
		if ready[0].revents != 0 {
			n, err := syscall.Read(in, buf)
			if n <= 0 && err != syscall.EINTR && err != syscall.EAGAIN {
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
	for b.lost > 0 || b.Len() > 0 {
		note := b.note()
		p := note
		if note == nil {
			p = b.Bytes()
		}
		n, err := syscall.Write(out, p)
		switch {
		case err == syscall.EAGAIN, err == syscall.EINTR:
			return nil
		case err != nil:
			return fmt.Errorf("cannot pass on what the terminal printed: %w", err)
		case note != nil:
			b.lost = 0
		default:
			b.take(n)
		}
	}
	return nil
}

// pollFd is struct pollfd of poll(2).
type pollFd struct {
	fd              int32
	events, revents int16
}

const pollIn, pollOut = 0x1, 0x4

// poll is ppoll(2) without a signal mask; 0 is not an error.
func poll(fds *[2]pollFd, wait *syscall.Timespec) syscall.Errno {
	_, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(fds)),
		uintptr(len(fds)), uintptr(unsafe.Pointer(wait)), 0, 0, 0)
	return e
}
