package provision

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/console"
	"github.com/chatd/chatd/ring"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/trees"
)

// What a terminal prints is the chat's word, as what a screen shows; but where it is kept is
// root's directory, which no chat sees, and how much of it is chatd's affair.

func (m *Manager) logFIFO(id chat.ID) string { return filepath.Join(m.sessionDir(id), "log") }

// removeLog removes what was kept.
func (m *Manager) removeLog(_ context.Context, rec state.Record) error {
	if m.logs.Remove(rec.ID) == nil {
		return nil
	}
	return trees.Remove(m.paths.logs, string(rec.ID))
}

// record keeps what the session prints until it ends.
func (m *Manager) record(s *session) {
	l, err := console.Open(m.logFIFO(s.id))
	if err != nil {
		m.log.Debug("not keeping what a terminal prints", "chat", s.id, "why", err)
		return
	}
	r, done, err := m.logs.Open(s.id)
	if err != nil {
		m.log.Error("cannot keep what a terminal prints", "chat", s.id, "error", errors.Join(err, l.Close()))
		return
	}
	s.log = l
	if s.adopted {
		if err := l.Recall(r); err != nil {
			m.log.Warn("cannot tell what the shell of an adopted session said last", "chat", s.id, "error", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	deafen := s.deafen
	s.deafen = func() { deafen(); stop() }
	m.done.Go(func() {
		defer done()
		l.Keep(ctx, r, console.Keeping{
			Alive: s.init.Alive, Printed: m.printed(s.id),
			Warn: func(what string, err error) { m.log.Warn(what, "chat", s.id, "error", err) },
		})
	})
}

// Log returns a piece of the log of the chat's terminal, awake or asleep, from the cursor since;
// below 0 it is from the first byte that is stored.
func (m *Manager) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Log{}, err
	}
	r, done, err := m.logs.Open(rec.ID)
	if err != nil {
		return chat.Log{}, err
	}
	defer done()
	return m.logPiece(rec.ID, r, since, make([]byte, chat.MaxLogPage))
}

// logPiece is [console.Piece].
func (m *Manager) logPiece(id chat.ID, r *ring.Ring, since int64, buf []byte) (chat.Log, error) {
	l, err := console.Piece(id, r, since, buf)
	l.Recording = err == nil && m.recording(id)
	return l, err
}

func (m *Manager) recording(id chat.ID) bool {
	s := m.session(id)
	return s != nil && s.log.Active()
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
	r, done, err := m.logs.Open(rec.ID)
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
