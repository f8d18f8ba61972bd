package terminal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/safefs"
)

// Logs are the logs of terminals, in one directory. Each log in use has one book, because two rings
// would not know of each other's bytes.
type Logs struct {
	log   *slog.Logger
	dir   string
	mu    sync.Mutex
	books map[chat.ID]*book
}

// book is the log of a chat's terminal, with the turns of the callers that type into it.
type book struct {
	id   chat.ID
	ring *ring
	// typing is held while an input is typed, waiting by a caller that types and waits.
	typing, waiting turn
	callers         atomic.Int32 // those with a [Terminal]
	recording       atomic.Pointer[Recording]
	users           int // Logs.mu is held
}

// NewLogs returns the logs in dir, a directory of root's.
func NewLogs(dir string, log *slog.Logger) *Logs {
	return &Logs{dir: dir, log: log, books: map[chat.ID]*book{}}
}

// open returns a chat's book until it is left.
func (l *Logs) open(id chat.ID) (*book, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[id]
	if b == nil {
		r, err := openRing(filepath.Join(l.dir, string(id)), chat.LogSize)
		if err != nil {
			return nil, err
		}
		b = &book{id: id, ring: r, typing: make(turn, 1), waiting: make(turn, 1)}
		l.books[id] = b
	}
	b.users++
	return b, nil
}

func (l *Logs) leave(b *book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.users--; b.users == 0 && l.books[b.id] == b {
		delete(l.books, b.id)
	}
}

// Remove removes a chat's log, also a tree that took its place. Its readers get an error, and the
// next chat of that id begins a new log.
func (l *Logs) Remove(id chat.ID) error {
	b, err := l.open(id)
	if err == nil {
		l.mu.Lock()
		delete(l.books, id)
		l.mu.Unlock()
		err = b.ring.remove()
	}
	if err == nil {
		return nil
	}
	if terr := safefs.Remove(l.dir, string(id)); terr != nil {
		return errors.Join(err, terr)
	}
	return nil
}

// Say appends a line of chatd's to a chat's log. The screen, which is the chat's, does not show it.
// An error is only logged: the disk may be full, or the chat reaped.
func (l *Logs) Say(id chat.ID, words string) {
	b, err := l.open(id)
	if err == nil {
		err = b.ring.append(said(words))
		l.leave(b)
	}
	if err != nil {
		l.log.Debug("cannot write into the log of a terminal", "chat", id, "what", words, "error", err)
	}
}

// said is a line of chatd's in a log.
func said(words string) []byte { return fmt.Appendf(nil, "\r\n[chatd: %s]\r\n", words) }

// Record opens the fifo to which a session's terminal is written, for the chat's log.
// [Recording.Keep] reads and closes it.
func (l *Logs) Record(id chat.ID, fifo string) (*Recording, error) {
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read what a terminal prints: %w", err)
	}
	b, err := l.open(id)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &Recording{logs: l, book: b, fifo: f, over: make(chan struct{})}
	b.recording.Store(r)
	return r, nil
}

// All returns everything that is kept of a chat's log, at most [chat.LogSize] bytes.
func (l *Logs) All(id chat.ID) ([]byte, error) {
	b, err := l.open(id)
	if err != nil {
		return nil, err
	}
	defer l.leave(b)
	start, end, _ := b.ring.bounds()
	all := make([]byte, end-start)
	n, _, err := b.ring.readAt(all, start)
	return all[:n], err
}

// Refill gives a chat without a log what All returned of a former one.
func (l *Logs) Refill(id chat.ID, text []byte) error {
	b, err := l.open(id)
	if err != nil {
		return err
	}
	defer l.leave(b)
	return b.ring.append(text)
}
