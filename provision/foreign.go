package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/leftovers"
	"github.com/chatd/chatd/state"
)

// removeLeftovers removes what the chat's uid has outside the chat's own trees, except for files
// that may be wanted. Journals of earlier chats go too: journald makes one anew that it had open.
func (m *Manager) removeLeftovers(ctx context.Context, rec state.Record) error {
	err := leftovers.Remove(ctx, rec.ID.User(), rec.UID)
	m.reportForeign(ctx, rec)
	return errors.Join(err, leftovers.RemoveJournals(m.store.Spent), m.removeSubordinate(ctx, rec))
}

// removeSubordinate removes the subordinate ids of the chat. Where chatd may not write to /etc,
// whoever put them there removes them: reap says so and goes on.
func (m *Manager) removeSubordinate(ctx context.Context, rec state.Record) error {
	err := leftovers.RemoveSubordinate(rec.ID.User(), rec.UID)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	m.log.Warn("subordinate ids of a reaped chat are left: remove its lines by hand",
		"chat", rec.ID, "error", err)
	return m.audit(ctx, rec, "reap", "left", map[string]string{"error": err.Error()})
}

// Files of the chat's uid may lie outside the chat's own trees: in a directory that an operator
// exposed for writing, or where a user of the host ran a command as the chat. They may be wanted
// work, so reap leaves them, and reports their paths. The uid is never assigned again.

// foreignNamed is how many of them one reap names.
const foreignNamed = 10

// reportForeign writes the files that outlive the chat into chatd's log and the audit log. It
// searches paths exposed for writing, and the top of the host's /tmp and /var/tmp.
func (m *Manager) reportForeign(ctx context.Context, rec state.Record) {
	var writable, first []string
	for _, e := range m.profile(rec).ExposePaths {
		if e.Mode == chat.ReadWrite {
			writable = append(writable, e.Source)
		}
	}
	left := 0
	all := leftovers.Search(rec.UID, writable, func(path string) {
		if left++; left <= foreignNamed {
			first = append(first, chat.Quote(path))
		}
	})
	if left == 0 && all {
		return
	}
	detail := map[string]string{"uid": fmt.Sprint(rec.UID), "files": fmt.Sprint(left), "first": strings.Join(first, " ")}
	if !all {
		detail["looked"] = fmt.Sprintf("at %d files at most, and at none below a mount", leftovers.MaxLooks)
	}
	m.log.Warn("files of a reaped chat are left where they do not belong to it", "chat", rec.ID, "uid", rec.UID, "files", left, "first", detail["first"])
	if err := m.audit(ctx, rec, "reap", "left", detail); err != nil {
		m.log.Error("cannot audit what a reap left", "chat", rec.ID, "error", err)
	}
}
