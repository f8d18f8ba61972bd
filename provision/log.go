package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/ring"
)

// Log returns a piece of the log of the chat's terminal, awake or asleep, from the cursor since;
// below 0 it is from the first byte that is stored.
func (m *Manager) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Log{}, err
	}
	r, done, err := m.openLog(rec.ID)
	if err != nil {
		return chat.Log{}, err
	}
	defer done()
	return m.logPiece(rec.ID, r, since, make([]byte, chat.MaxLogPage))
}

// logPiece reads at most len(buf) bytes. It leaves a character that the end of the piece cuts to
// the next piece, unless nothing would remain.
func (m *Manager) logPiece(id chat.ID, r *ring.Ring, since int64, buf []byte) (chat.Log, error) {
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
	l := chat.Log{From: from, Cursor: from + int64(len(piece)), Lost: from - since, Recording: m.recording(id)}
	l.End = max(end, l.Cursor)
	l.SetBytes(piece)
	return l, nil
}

func (m *Manager) recording(id chat.ID) bool {
	s := m.session(id)
	return s != nil && s.log.recording()
}

// logBeat is the longest time between two pieces for a follower of a log.
const logBeat = 15 * time.Second

// FollowLog calls out with each piece of the log of the chat's terminal from since on, as for
// Log, and with an empty piece every logBeat. It ends with ctx, with out's error or with the
// chat, not with its session. While out does not return, FollowLog reads nothing and blocks no
// other caller; bytes that are overwritten meanwhile count as lost.
func (m *Manager) FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	r, done, err := m.openLog(rec.ID)
	if err != nil {
		return err
	}
	defer done()
	buf := make([]byte, 32<<10)
	for first := true; ; first = false {
		_, _, changed := r.Bounds()
		l, err := m.logPiece(rec.ID, r, since, buf)
		if err != nil {
			return err
		}
		if since = l.Cursor; first || len(l.Bytes()) > 0 {
			if err := out(l); err != nil {
				return err
			}
			if len(l.Bytes()) > 0 {
				continue
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot follow the log of chat %s: %w", id, context.Cause(ctx))
		case <-time.After(logBeat):
			l.Text, l.Base64, l.From, l.Lost, l.Recording = "", nil, l.Cursor, 0, m.recording(id)
			if err := out(l); err != nil {
				return err
			}
		}
	}
}
