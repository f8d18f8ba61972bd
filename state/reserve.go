package state

import (
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
)

// A chat can fill the state's file system, because its /tmp is on it. Ending a chat must still be
// recorded then, to make room, and a restarted chatd must open its database. So blocks are reserved
// ahead of the writes, and no new act begins on a full file system. The reserve is for acts that
// have begun and acts that end something.

// Bytes to reserve for the database and for the log.
const (
	dbReserve    = 1 << 20
	auditReserve = 256 << 10
)

// leastFree is how many bytes must be free for an act to begin. Tests set less.
var leastFree uint64 = 1 << 20

// reserve is the offset up to which a file's blocks are reserved.
type reserve struct{ upTo int64 }

// ahead reserves blocks for more bytes after the first used ones. It ignores errors: not every file
// system can reserve, and a full one cannot.
func (r *reserve) ahead(f *os.File, used, more int64) {
	if used+more/2 <= r.upTo {
		return
	}
	if allocate(f, used+more) == nil {
		r.upTo = used + more
	}
}

// endings are the actions that may begin on a full file system: they write a few lines, and make
// room.
var endings = map[string]bool{"reap": true, "sleep": true, "end": true, "unschedule": true}

// mayBegin returns [chat.ErrBusy] if the event begins an act for which there is no room.
func (s *Store) mayBegin(e Event) error {
	if e.Outcome == "done" || e.Outcome == "failed" || endings[e.Action] {
		return nil
	}
	return s.Room()
}

// Room returns [chat.ErrBusy] if there is no room to begin any act.
func (s *Store) Room() error {
	if free, ok := freeBytes(s.opts.Dir); ok && free < leastFree {
		return fmt.Errorf("cannot begin anything: the file system of chatd's state directory is full: reap a chat, or make room there: %w", chat.ErrBusy)
	}
	return nil
}
