package console

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/ring"
)

// Logs are the logs of terminals, in one directory. They know those that somebody uses: one ring
// for each, or two would not know of each other's bytes.
type Logs struct {
	dir   string
	mu    sync.Mutex
	books map[chat.ID]*book
}

type book struct {
	ring  *ring.Ring
	users int
}

// NewLogs returns the logs in dir, a directory of root's.
func NewLogs(dir string) *Logs { return &Logs{dir: dir, books: map[chat.ID]*book{}} }

// Open returns a chat's log until done is called.
func (l *Logs) Open(id chat.ID) (r *ring.Ring, done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[id]
	if b == nil {
		if r, err = ring.Open(filepath.Join(l.dir, string(id)), chat.LogSize); err != nil {
			return nil, nil, err
		}
		b = &book{ring: r}
		l.books[id] = b
	}
	b.users++
	return b.ring, func() { l.leave(id, b) }, nil
}

func (l *Logs) leave(id chat.ID, b *book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.users--; b.users == 0 && l.books[id] == b {
		delete(l.books, id)
	}
}

// Remove removes a chat's log. A reader of it is told so, and the next chat of that id begins anew.
func (l *Logs) Remove(id chat.ID) error {
	r, done, err := l.Open(id)
	if err != nil {
		return err
	}
	defer done()
	l.mu.Lock()
	delete(l.books, id)
	l.mu.Unlock()
	return r.Remove()
}

// Piece reads at most len(buf) bytes. It leaves a character that the end of the piece cuts to
// the next piece, unless nothing would remain. A since below 0 is the first byte that is kept. A log
// that was removed is [chat.ErrNotFound].
func Piece(id chat.ID, r *ring.Ring, since int64, buf []byte) (chat.Log, error) {
	start, end, _ := r.Bounds()
	if since > end {
		return chat.Log{}, fmt.Errorf("cannot read the log of chat %s: cursor %d: it ends at %d: %w", id, since, end, chat.ErrInvalid)
	}
	if since < 0 {
		since = start
	}
	n, from, err := r.ReadAt(buf, since)
	if errors.Is(err, ring.ErrRemoved) {
		return chat.Log{}, fmt.Errorf("cannot read the log of chat %s: it was reaped: %w", id, chat.ErrNotFound)
	}
	if err != nil {
		return chat.Log{}, err
	}
	piece := buf[:n]
	if whole := piece[:chat.WholeRunes(piece)]; len(whole) > 0 {
		piece = whole
	}
	l := chat.Log{From: from, Cursor: from + int64(len(piece)), Lost: from - since}
	l.End = max(end, l.Cursor)
	l.SetBytes(piece)
	return l, nil
}
