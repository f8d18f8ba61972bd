package state

import (
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
)

// A chat can fill the file system that the state is on: its /tmp lies there. What ends a chat must
// still be written down then, or nobody could make room, and a chatd that is started must still
// open its database. So blocks are set aside ahead of what is written, and nothing new begins once
// the file system is full: what has begun, and what ends something, has the rest to itself.

// Room in bytes: what is set aside of the database and of the log.
const (
	dbReserve    = 1 << 20
	auditReserve = 256 << 10
)

// leastFree is how many bytes must be free for anything to begin. Tests have less.
var leastFree uint64 = 1 << 20

// reserve is how far the blocks of a file are set aside.
type reserve struct{ upTo int64 }

// ahead sets blocks aside for more bytes behind the first used ones. Best effort: not every file
// system can, and a full one could not before either.
func (r *reserve) ahead(f *os.File, used, more int64) {
	if used+more/2 <= r.upTo {
		return
	}
	if allocate(f, used+more) == nil {
		r.upTo = used + more
	}
}

// endings are the actions that may begin on a full file system: they use a few lines, and make
// room.
var endings = map[string]bool{"reap": true, "sleep": true, "end": true, "unschedule": true}

// mayBegin is a [chat.ErrBusy] where an event is the beginning of something for which there is no
// room.
func (s *Store) mayBegin(e Event) error {
	if e.Outcome == "done" || e.Outcome == "failed" || endings[e.Action] {
		return nil
	}
	return s.roomy()
}

func (s *Store) roomy() error {
	if free, ok := freeBytes(s.opts.Dir); ok && free < leastFree {
		return fmt.Errorf("cannot begin anything: the file system of chatd's state directory is full: reap a chat, or make room there: %w", chat.ErrBusy)
	}
	return nil
}
