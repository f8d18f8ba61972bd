package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestEndedWhileItStarts: a session without cgroups has ended; the error is not that of a chat
// that does not exist.
func TestEndedWhileItStarts(t *testing.T) {
	l := Leaf{Chat: "0123456789abcdef"}
	err := asEnded(l.Chat, fmt.Errorf("cannot list the processes of a cgroup: %w", chat.ErrNotFound))
	if !errors.Is(err, chat.ErrBusy) || errors.Is(err, chat.ErrNotFound) ||
		!strings.Contains(err.Error(), "the next call wakes the chat") {
		t.Errorf("%v", err)
	}
	for _, other := range []error{nil, chat.ErrBusy} {
		if err := asEnded(l.Chat, other); err != other {
			t.Errorf("%v becomes %v", other, err)
		}
	}
}
