package provision

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/ring"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
	"github.com/chatd/chatd/trees"
)

// What a terminal prints comes through a fifo, from chatd-shim log, which tmux starts as the
// chat (pipe-pane in tmux(1)). The chat's word, as what a screen shows; but where it is kept is
// root's directory, which no chat sees, and how much of it is chatd's affair. The writer never
// waits for chatd: it keeps what chatd does not take, 1 MiB of it, and says what it left out.
// So chatd may take its time, and be restarted.

// logRate bounds what is read of one chat, in bytes a second: reading and keeping it costs
// chatd's time, which no limit of the chat's counts.
const logRate = 16 << 20

func (m *Manager) logFIFO(id chat.ID) string { return filepath.Join(m.sessionDir(id), "log") }

// removeLog removes what was kept; who still reads it is told so.
func (m *Manager) removeLog(_ context.Context, rec state.Record) error {
	r, done, err := m.openLog(rec.ID)
	if err != nil {
		return trees.Remove(m.paths.logs, string(rec.ID))
	}
	defer done()
	m.logs.forget(rec.ID)
	return r.Remove()
}

// logBooks are the logs that somebody uses: one ring for each, or two would not know of each
// other's bytes. The zero value is ready.
type logBooks struct {
	mu    sync.Mutex
	books map[chat.ID]*logBook
}

type logBook struct {
	ring  *ring.Ring
	users int
}

// openLog is the chat's log until done is called.
func (m *Manager) openLog(id chat.ID) (r *ring.Ring, done func(), err error) {
	l := &m.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[id]
	if b == nil {
		if r, err = ring.Open(filepath.Join(m.paths.logs, string(id)), chat.LogSize); err != nil {
			return nil, nil, err
		}
		b = &logBook{ring: r}
		if l.books == nil {
			l.books = map[chat.ID]*logBook{}
		}
		l.books[id] = b
	}
	b.users++
	return b.ring, func() { l.leave(id, b) }, nil
}

func (l *logBooks) leave(id chat.ID, b *logBook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.users--; b.users == 0 && l.books[id] == b {
		delete(l.books, id)
	}
}

// forget lets the next chat of that id begin anew.
func (l *logBooks) forget(id chat.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.books, id)
}

// sessionLog is the reading end of what a session prints. Nil, it is that of a session of an
// older chatd, which has none.
type sessionLog struct {
	fifo *os.File
	// atPrompt: the last mark was the end of a prompt, and nothing was entered since.
	atPrompt atomic.Bool
	last     atomic.Int32 // what the shell said last; see look
	more     bool         // the prompt that has begun is for the rest of a line
	// over is closed when all that the session printed is kept.
	over chan struct{}
}

// recording reports whether somebody holds the writing end, or nobody has yet: a fifo is hung
// up when its last writer is gone (pipe(7), poll(2)).
func (l *sessionLog) recording() bool {
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

// record keeps what the session prints until it ends.
func (m *Manager) record(s *session) {
	f, err := os.OpenFile(m.logFIFO(s.id), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		m.log.Debug("not keeping what a terminal prints", "chat", s.id, "why", err)
		return
	}
	r, done, err := m.openLog(s.id)
	if err != nil {
		m.log.Error("cannot keep what a terminal prints", "chat", s.id, "error", err)
		_ = f.Close()
		return
	}
	s.log = &sessionLog{fifo: f, over: make(chan struct{})}
	if s.adopted {
		if err := s.log.recall(r); err != nil {
			m.log.Warn("cannot tell what the shell of an adopted session said last", "chat", s.id, "error", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(past) })
	deafen := s.deafen
	s.deafen = func() { deafen(); stop() }
	m.done.Go(func() {
		defer done()
		defer f.Close()
		m.keepLog(ctx, s, r)
	})
}

// largestFIFO is the most that a fifo holds of one session: what /proc/sys/fs/pipe-max-size is
// for who is not root (pipe(7)).
const largestFIFO = 1 << 20

// writerGone is kept, once, when the chat has ended its own writer.
const writerGone = "\r\n[chatd: the writer of this log has ended; what is printed now is not kept]\r\n"

func (m *Manager) keepLog(ctx context.Context, s *session, r *ring.Ring) {
	defer close(s.log.over)
	buf := make([]byte, 64<<10)
	k := logKeeper{used: time.Now()}
	for {
		began := time.Now()
		n, err := s.log.fifo.Read(buf)
		if n > 0 {
			m.printed(s.id, &k)
			s.log.look(k.marks.Read(buf[:n]))
			if err := r.Append(buf[:n]); errors.Is(err, ring.ErrRemoved) {
				return
			} else if err != nil { // a full disk
				m.once(&k, "cannot keep what a terminal prints", s.id, err)
			}
		} else if !errors.Is(err, io.EOF) || ctx.Err() != nil {
			if err := s.log.keepRest(r, buf); err != nil { // a full disk
				m.once(&k, "cannot keep what a terminal printed last", s.id, err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(k.pause(n, s.log, time.Since(began))):
		}
		if k.missing == 2 && ctx.Err() == nil && s.init.Alive() {
			m.once(&k, "the writer of a log has ended", s.id, nil)
			_ = r.Append([]byte(writerGone)) // the log of chatd says it already
		}
	}
}

// keepRest keeps what is in the fifo, however late it is read: a session that has ended prints
// no more, and one that goes on, where chatd ends, waits for the next chatd with the rest.
func (l *sessionLog) keepRest(r *ring.Ring, buf []byte) error {
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

// logKeeper is what is known between two reads.
type logKeeper struct {
	marks   tmux.Marks
	missing int // how often in a row there was no writer
	told    bool
	used    time.Time // when what was printed last counted as use
}

func (m *Manager) once(k *logKeeper, what string, id chat.ID, err error) {
	if !k.told {
		m.log.Warn(what, "chat", id, "error", err)
	}
	k.told = true
}

// pause is how long is waited after n bytes: as logRate has it, and where nobody writes until
// somebody does. A session that ends looks like one whose writer was ended, for a moment.
func (k *logKeeper) pause(n int, l *sessionLog, took time.Duration) time.Duration {
	switch {
	case n > 0:
		k.missing = 0
		return max(0, time.Duration(n)*time.Second/logRate-took)
	case l.recording(): // not begun yet
		k.missing = 0
		return 5 * time.Millisecond
	}
	k.missing++
	return 500 * time.Millisecond
}
