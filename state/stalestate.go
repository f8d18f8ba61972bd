package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// restore is the advice for a database that lacks uids in use.
const restore = "restore " + dbName + " and " + keyName + " of the same day from a backup (specs/0010); or, if there is none, move what is left of those chats and the audit logs elsewhere; or set uids to a range that was never used"

// WasGiven reports whether uid was ever given to a chat.
func (s *Store) WasGiven(uid uint32) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return isGiven(s.blocks, uid)
}

func isGiven(blocks []*block, uid uint32) bool {
	b := blockOf(blocks, uid)
	return b != nil && uid < b.Next
}

// Peek is [Store.WasGiven] for a state that no process holds; it changes nothing. Without a
// database no uid was given. [chat.ErrBusy] means that a chatd holds the state.
func Peek(dir string) (func(uid uint32) bool, error) {
	path := filepath.Join(dir, dbName)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return func(uint32) bool { return false }, nil
	}
	db, _, err := openDB(path, true, time.Second)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db}
	err = guarded(path, s.load)
	return s.WasGiven, errors.Join(err, db.Close())
}

// checkLogged refuses a database that lacks uids in the audit log beside it. A new database, or an
// older copy, would give uids again that files on the host still have. A record is written before
// its first line, so that no crash causes this.
func (s *Store) checkLogged(kept head) error {
	files, err := AuditFiles(s.opts.Dir)
	if err != nil {
		return err
	}
	if kept.Seq > 0 { // else it never wrote a line: any log there belongs to another database
		files = files[len(files)-1:]
	}
	for _, file := range files {
		uid, err := s.firstUnknown(file, kept.Offset)
		if err != nil {
			return fmt.Errorf("cannot read audit log %s: %w", file, err)
		}
		if uid != 0 {
			return fmt.Errorf("cannot use %s: it never gave uid %d, which audit log %s names, and would give it again: %s: %w", s.db.Path(), uid, file, restore, chat.ErrExists)
		}
	}
	return nil
}

// firstUnknown is the first uid of the range that a line after offset names and that was never
// given, or 0. It reads a shorter log whole.
func (s *Store) firstUnknown(file string, offset int64) (uint32, error) {
	f, err := openPrivate(file, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() < offset {
		offset = 0
	}
	for raw, err := range linesOf(io.NewSectionReader(f, offset, 1<<62)) {
		if err != nil {
			return 0, err
		}
		var l line
		if json.Unmarshal(raw.text, &l) != nil {
			continue // replay reports it
		}
		if s.opts.UIDs.Contains(l.UID) && l.UID != s.opts.UIDs.High && !isGiven(s.blocks, l.UID) {
			return l.UID, nil
		}
	}
	return 0, nil
}

// CheckGiven refuses a database in dir that never gave a uid of the range which owns a path in
// owners. It lacks the host's history, and would give that uid, and with it the files of the first
// chat, to another chat. The probes' uid is ignored.
func CheckGiven(dir string, given func(uint32) bool, all Range, owners map[uint32]string) error {
	var never []uint32
	for uid := range owners {
		if all.Contains(uid) && uid != all.High && !given(uid) {
			never = append(never, uid)
		}
	}
	if len(never) == 0 {
		return nil
	}
	slices.Sort(never)
	var found []string
	for _, uid := range never[:min(len(never), 5)] {
		found = append(found, fmt.Sprintf("%s of uid %d", owners[uid], uid))
	}
	if more := len(never) - len(found); more > 0 {
		found = append(found, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("cannot use the database in %s: it is younger than what is on this host, "+
		"and would give used uids again: it never heard of %s: %s: %w",
		dir, strings.Join(found, ", "), restore, chat.ErrExists)
}
