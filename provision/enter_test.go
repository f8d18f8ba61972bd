package provision

import (
	"errors"
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/test/expect"
)

// goneGroups are those of a session that ended just now.
type goneGroups struct{ groups }

// CreateRun finds no cgroup of the chat.
func (goneGroups) CreateRun(id chat.ID, run string) error {
	return fmt.Errorf("cannot make cgroup runs/%s of chat %s: %w", run, id, chat.ErrNotFound)
}

// Frozen finds none either.
func (goneGroups) Frozen(chat.ID) (chat.Frozen, error) { return "", nil }

// TestEnterAnEndedSession: the chat is there, so nothing says that it is not found.
func TestEnterAnEndedSession(t *testing.T) {
	m, rec := ruled(t, "")
	m.groups.groups = goneGroups{}
	s := &liveSession{Session: &session.Session{Chat: rec.ID, UID: rec.UID}}
	_, runErr := m.enter(t.Context(), rec, s, session.Entry{Run: "run-1"})
	expect.True(t, errors.Is(runErr, chat.ErrBusy) && !errors.Is(runErr, chat.ErrNotFound),
		"a run in a session that ended: %v", runErr)
}
