package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/tmux"
)

// rate bounds the output that chatd reads of one chat, in bytes a second. Reading and keeping it
// takes CPU time of chatd's, which no limit of the chat's counts.
const rate = 16 << 20

// Recording is the reading end of a session's output. It is nil where that could not be opened.
type Recording struct {
	logs *Logs
	book *book
	fifo *os.File
	// atPrompt: the last mark was the end of a prompt, and nothing was entered since.
	atPrompt atomic.Bool
	last     atomic.Int32 // the shell's last state; see look
	more     bool         // the prompt that has begun is for the rest of a line
	begun    atomic.Bool  // the session's first prompt was waited for
	// over is closed when all output of the session is kept.
	over chan struct{}
}

// Active reports whether the fifo has a writer, or has not had one yet: it hangs up when its last
// writer closes it (pipe(7), poll(2)).
func (l *Recording) Active() bool {
	if l == nil {
		return false
	}
	p := []unix.PollFd{{}}
	err := sys.OnDescriptor(l.fifo, func(fd int) error {
		p[0].Fd = int32(fd)
		_, err := unix.Poll(p, 0)
		return err
	})
	return err == nil && p[0].Revents&unix.POLLHUP == 0
}

// largestFIFO bounds the content of a session's fifo: the default of /proc/sys/fs/pipe-max-size,
// the bound for unprivileged users (pipe(7)).
const largestFIFO = 1 << 20

// writerGone is written to the log, once, when the chat has ended its own writer.
const writerGone = "the writer of this log has ended; what is printed now is not kept"

// Keeping has the functions of a session that [Recording.Keep] calls.
type Keeping struct {
	Alive   func() bool                  // whether the session lives
	Printed func()                       // it printed something; at most every printedEvery
	Warn    func(what string, err error) // err may be nil
}

// printedEvery is how often the terminal's output counts as use of the chat: each time is a write
// to the database.
const printedEvery = 5 * time.Second

// Keep keeps the session's output until ctx ends, or the log is removed. If the writer has ended
// and the session lives, it says so in the log.
func (l *Recording) Keep(ctx context.Context, s Keeping) {
	defer l.logs.leave(l.book)
	defer l.book.recording.CompareAndSwap(l, nil) // a next session may have its own
	defer close(l.over)
	defer l.fifo.Close()
	defer context.AfterFunc(ctx, func() { _ = l.fifo.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 64<<10)
	r, k := l.book.ring, keepState{warn: s.Warn, printed: time.Now()} // its wake counts already
	for {
		began := time.Now()
		n, err := l.fifo.Read(buf)
		if n > 0 {
			k.countUse(time.Now(), s.Printed)
			l.look(k.marks.Read(buf[:n]))
			if err := r.append(buf[:n]); errors.Is(err, errRemoved) {
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
		_ = chat.Sleep(ctx, k.pause(n, l, time.Since(began)))
		if k.missing == 2 && ctx.Err() == nil && s.Alive() {
			k.once("the writer of a log has ended", nil)
			_ = r.append(said(writerGone)) // the log of chatd says it already
		}
	}
}

// keepRest keeps the rest of the fifo, however late. A session that has ended prints no more, and
// one that outlives this chatd keeps further output for the next.
func (l *Recording) keepRest(r *ring, buf []byte) error {
	err := sys.OnDescriptor(l.fifo, func(fd int) error {
		for left := largestFIFO; left > 0; {
			n, err := unix.Read(fd, buf[:min(len(buf), left)])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case n <= 0:
				return nil
			}
			if err := r.append(buf[:n]); err != nil {
				return err
			}
			left -= n
		}
		return nil
	})
	if errors.Is(err, errRemoved) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// keepState is the state between two reads.
type keepState struct {
	marks   tmux.Marks
	missing int       // how often in a row there was no writer
	printed time.Time // when what was printed counted as use
	warn    func(what string, err error)
	warned  bool
}

// countUse calls printed, unless it was called just before.
func (k *keepState) countUse(now time.Time, printed func()) {
	if now.Sub(k.printed) >= printedEvery {
		k.printed = now
		printed()
	}
}

// once warns of the first fault.
func (k *keepState) once(what string, err error) {
	if !k.warned {
		k.warn(what, err)
	}
	k.warned = true
}

// pause returns how long Keep waits after n bytes: as rate has it, or, without a writer, until the
// next check for one. A session that is ending looks for a moment like one whose writer was ended.
func (k *keepState) pause(n int, l *Recording, took time.Duration) time.Duration {
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
