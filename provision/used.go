package provision

import (
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// touch notes that the chat is used now.
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
	return m.runs.anyUnderWay(id) || m.calls.anyUnderWay(id) || m.typing.used(id)
}

func (l *liveRuns) anyUnderWay(id chat.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all[id] {
		if !r.isOver() {
			return true
		}
	}
	return false
}

func (f *fileCalls) anyUnderWay(id chat.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chats[id] != nil
}

// printedEvery is how often what a terminal prints counts as use: each time costs a
// write to the database.
const printedEvery = 5 * time.Second

// printed returns what notes that a terminal printed something. A session's first output is that
// of its wake, which counts already.
func (m *Manager) printed(id chat.ID) func() {
	used := time.Now()
	return func() {
		if now := time.Now(); now.Sub(used) >= printedEvery {
			used = now
			m.store.Touch(id, now)
		}
	}
}
