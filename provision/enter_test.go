package provision

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// goneGroups are those of a session that ended just now.
type goneGroups struct{ groups }

// CreateRun finds no cgroup of the chat.
func (goneGroups) CreateRun(id chat.ID, run string) error {
	return fmt.Errorf("cannot make cgroup runs/%s of chat %s: %w", run, id, chat.ErrNotFound)
}

// TestEnterAnEndedSession: the chat is there, so nothing says that it is not found.
func TestEnterAnEndedSession(t *testing.T) {
	m, rec := ruled(t, "")
	m.groups = goneGroups{}
	s := &session{id: rec.ID}
	_, runErr := m.enter(t.Context(), rec, s, entry{run: "run-1"})
	_, toolErr := m.enterTool(t.Context(), rec, s, &fileCall{})
	for what, err := range map[string]error{"run": runErr, "file tool": toolErr} {
		if !errors.Is(err, chat.ErrWrongPhase) || errors.Is(err, chat.ErrNotFound) {
			t.Errorf("a %s in a session that ended: %v", what, err)
		}
	}
}

// TestEndedWhileItStarts: a session whose cgroups are gone is one that has ended, and not a chat
// that is not there.
func TestEndedWhileItStarts(t *testing.T) {
	err := asEnded("0123456789abcdef", fmt.Errorf("cannot list the processes of a cgroup: %w", chat.ErrNotFound))
	if !errors.Is(err, chat.ErrWrongPhase) || errors.Is(err, chat.ErrNotFound) || !strings.Contains(err.Error(), "cannot list") {
		t.Errorf("%v", err)
	}
	for _, other := range []error{nil, chat.ErrBusy} {
		if err := asEnded("0123456789abcdef", other); err != other {
			t.Errorf("%v becomes %v", other, err)
		}
	}
}
