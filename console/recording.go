package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/ring"
	"github.com/chatd/chatd/tmux"
)

// rate bounds what is read of one chat, in bytes a second: reading and keeping it costs chatd's
// time, which no limit of the chat's counts.
const rate = 16 << 20

// Recording is the reading end of what a session prints. A nil one is that of a session of an
// older chatd, which has none.
type Recording struct {
	fifo *os.File
	// atPrompt: the last mark was the end of a prompt, and nothing was entered since.
	atPrompt atomic.Bool
	last     atomic.Int32 // what the shell said last; see look
	more     bool         // the prompt that has begun is for the rest of a line
	// over is closed when all that the session printed is kept.
	over chan struct{}
}

// Active reports whether somebody holds the writing end, or nobody has yet: a fifo is hung
// up when its last writer is gone (pipe(7), poll(2)).
func (l *Recording) Active() bool {
	if l == nil {
		return false
	}
	rc, err := l.fifo.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	err = rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		open = err == nil && p[0].Revents&unix.POLLHUP == 0
	})
	return err == nil && open
}

// Open opens the fifo to which a session's terminal is written. [Recording.Keep] reads and closes it.
func Open(fifo string) (*Recording, error) {
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read what a terminal prints: %w", err)
	}
	return &Recording{fifo: f, over: make(chan struct{})}, nil
}

// Close closes the fifo of a recording that nobody keeps.
func (l *Recording) Close() error { return l.fifo.Close() }

// largestFIFO is the most that a fifo holds of one session: what /proc/sys/fs/pipe-max-size is
// for who is not root (pipe(7)).
const largestFIFO = 1 << 20

// writerGone is kept, once, when the chat has ended its own writer.
const writerGone = "\r\n[chatd: the writer of this log has ended; what is printed now is not kept]\r\n"

// Keeping says what a [Recording] needs of its session.
type Keeping struct {
	Alive   func() bool                  // whether the session lives
	Printed func()                       // it printed something
	Warn    func(what string, err error) // err may be nil
}

// Keep keeps what the session prints until ctx ends, or r is removed. Where the writer has ended
// and the session lives, it says so in r.
func (l *Recording) Keep(ctx context.Context, r *ring.Ring, s Keeping) {
	defer close(l.over)
	defer l.fifo.Close()
	defer context.AfterFunc(ctx, func() { _ = l.fifo.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 64<<10)
	k := keeper{warn: s.Warn}
	for {
		began := time.Now()
		n, err := l.fifo.Read(buf)
		if n > 0 {
			s.Printed()
			l.look(k.marks.Read(buf[:n]))
			if err := r.Append(buf[:n]); errors.Is(err, ring.ErrRemoved) {
				return
			} else if err != nil { // a full disk
				k.once("cannot keep what a terminal prints", err)
			}
		} else if !errors.Is(err, io.EOF) || ctx.Err() != nil {
			if err := l.keepRest(r, buf); err != nil { // a full disk
				k.once("cannot keep what a terminal printed last", err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(k.pause(n, l, time.Since(began))):
		}
		if k.missing == 2 && ctx.Err() == nil && s.Alive() {
			k.once("the writer of a log has ended", nil)
			_ = r.Append([]byte(writerGone)) // the log of chatd says it already
		}
	}
}

// keepRest keeps what is in the fifo, however late it is read: a session that has ended prints
// no more, and one that goes on, where chatd ends, waits for the next chatd with the rest.
func (l *Recording) keepRest(r *ring.Ring, buf []byte) error {
	rc, err := l.fifo.SyscallConn()
	if err != nil {
		return nil // closed
	}
	var kept error
	_ = rc.Control(func(fd uintptr) { // closed, or kept is all there is to say
		for left := largestFIFO; left > 0 && kept == nil; {
			n, err := unix.Read(int(fd), buf[:min(len(buf), left)])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			kept, left = r.Append(buf[:n]), left-n
		}
	})
	if errors.Is(kept, ring.ErrRemoved) {
		return nil
	}
	return kept
}

// keeper is what is known between two reads.
type keeper struct {
	marks   tmux.Marks
	missing int // how often in a row there was no writer
	warn    func(what string, err error)
	told    bool
}

// once warns of the first fault.
func (k *keeper) once(what string, err error) {
	if !k.told {
		k.warn(what, err)
	}
	k.told = true
}

// pause is how long is waited after n bytes: as rate has it, and where nobody writes until
// somebody does. A session that ends looks like one whose writer was ended, for a moment.
func (k *keeper) pause(n int, l *Recording, took time.Duration) time.Duration {
	switch {
	case n > 0:
		k.missing = 0
		return max(0, time.Duration(n)*time.Second/rate-took)
	case l.Active(): // not begun yet
		k.missing = 0
		return 5 * time.Millisecond
	}
	k.missing++
	return 500 * time.Millisecond
}
