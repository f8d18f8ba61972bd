package provision

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/console"
	"github.com/chatd/chatd/state"
)

// The output of a terminal, like a screen, is the chat's word. It is kept in a directory of root's,
// which no chat sees, and chatd bounds its size.

func (m *Manager) removeLog(_ context.Context, rec state.Record) error {
	return m.logs.Remove(rec.ID)
}

// record keeps what the session prints until it ends.
func (m *Manager) record(s *liveSession) {
	l, err := m.logs.Record(s.Chat, m.sessionDir(s.Chat, s.UID).Log())
	switch {
	case errors.Is(err, os.ErrNotExist):
		m.log.Debug("not keeping what a terminal prints", "chat", s.Chat, "why", err)
		return
	case err != nil:
		m.log.Error("cannot keep what a terminal prints", "chat", s.Chat, "error", err)
		return
	}
	s.log = l
	if s.adopted {
		if err := l.Recall(); err != nil {
			m.log.Warn("cannot tell what the shell of an adopted session said last", "chat", s.Chat, "error", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stopLog = stop
	m.done.Go(func() {
		l.Keep(ctx, console.Keeping{
			Alive: s.Init.Alive, Printed: func() { m.store.Touch(s.Chat, time.Now()) },
			Warn: func(what string, err error) { m.log.Warn(what, "chat", s.Chat, "error", err) },
		})
	})
}

// Log returns a piece of the log of the chat's terminal, awake or asleep, from the cursor since.
// Below 0 it is from the first byte that is stored.
func (m *Manager) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Log{}, err
	}
	return m.logs.Piece(rec.ID, since)
}

// FollowLog is [console.Logs.Follow]; the log ends with the chat.
func (m *Manager) FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return err
	}
	return m.logs.Follow(ctx, rec.ID, since, out)
}

// sayInLog appends a line of chatd's to the log of a chat's terminal.
func (m *Manager) sayInLog(id chat.ID, words string) {
	if err := m.logs.Say(id, words); err != nil { // a full disk, or the chat was reaped
		m.log.Debug("cannot say in the log of a terminal", "chat", id, "what", words, "error", err)
	}
}
