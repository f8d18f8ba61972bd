package provision

import (
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// touch records that the chat is used now.
func (m *Manager) touch(rec state.Record) { m.store.Touch(rec.ID, time.Now()) }

// usedAt is when the chat was last used, which is now while it is at work. Reap by
// idleness goes by it.
func (m *Manager) usedAt(rec state.Record) time.Time {
	if m.atWork(rec.ID) {
		return time.Now().UTC()
	}
	return rec.UsedAt
}

// atWork reports whether the chat is in use: a run of any kind is under way, a client is
// attached to its terminal, a file tool works, or a caller waits for what it typed.
func (m *Manager) atWork(id chat.ID) bool {
	return m.runs.AnyUnderWay(id) || m.calls.UnderWay(id) || m.logs.AnyWaits(id)
}
