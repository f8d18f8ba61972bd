package terminal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
)

// Piece returns a piece of a chat's log, awake or asleep, from the cursor since. Below 0 it is from
// the first byte that is kept.
func (l *Logs) Piece(id chat.ID, since int64) (chat.Log, error) {
	b, err := l.open(id)
	if err != nil {
		return chat.Log{}, err
	}
	defer l.leave(b)
	return b.piece(since, make([]byte, chat.MaxLogPage))
}

// beat is the longest time between two pieces for a follower of a log.
const beat = 15 * time.Second

// Follow calls out with each piece of a chat's log from since on, as for [Logs.Piece], and with an
// empty piece every beat. It ends with ctx, with out's error or with the log, not with a session.
// While out does not return, Follow reads nothing and blocks no other caller; bytes that are
// overwritten meanwhile count as lost.
func (l *Logs) Follow(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	b, err := l.open(id)
	if err != nil {
		return err
	}
	defer l.leave(b)
	buf := make([]byte, 32<<10)
	for first := true; ; first = false {
		_, _, changed := b.ring.bounds()
		p, err := b.piece(since, buf)
		if err != nil {
			return err
		}
		if since = p.Cursor; first || len(p.Bytes()) > 0 {
			if err := out(p); err != nil {
				return err
			}
			if len(p.Bytes()) > 0 {
				continue
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot follow the log of chat %s: %w", id, context.Cause(ctx))
		case <-time.After(beat):
			p.Text, p.Base64, p.From, p.Lost, p.Recording = "", nil, p.Cursor, 0, b.recording.Load().Active()
			if err := out(p); err != nil {
				return err
			}
		}
	}
}

// piece reads at most len(buf) bytes. It leaves a character that the end of the piece cuts to the
// next piece, unless nothing would remain. A log that was removed is [chat.ErrNotFound].
func (b *book) piece(since int64, buf []byte) (chat.Log, error) {
	start, end, _ := b.ring.bounds()
	if since < 0 {
		since = start
	}
	n, from, err := b.ring.readAt(buf, since)
	const cannot = "cannot read the log of chat"
	switch {
	case errors.Is(err, errRemoved): // which has no cursors
		return chat.Log{}, fmt.Errorf("%s %s: it was reaped: %w", cannot, b.id, chat.ErrNotFound)
	case err != nil:
		return chat.Log{}, err
	case since > end:
		return chat.Log{}, chat.Invalid("%s %s: cursor %d: it ends at %d", cannot, b.id, since, end)
	}
	bytes := buf[:n]
	if whole := bytes[:chat.WholeRunes(bytes)]; len(whole) > 0 {
		bytes = whole
	}
	p := chat.Log{From: from, Cursor: from + int64(len(bytes)), Lost: from - since}
	p.End, p.Recording = max(end, p.Cursor), b.recording.Load().Active()
	p.SetBytes(bytes)
	return p, nil
}
