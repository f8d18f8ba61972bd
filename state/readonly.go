package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/chatd/chatd/chat"
)

// ErrReadOnly is the error of every write if the state's file system was read-only when it was
// opened: ext4 becomes read-only after a disk error. Reads still work, so that an operator sees the
// chats.
var ErrReadOnly = fmt.Errorf("cannot write state: its file system is read-only: mount it read-write and start chatd again: %w: %w", syscall.EROFS, chat.ErrBusy)

// openLock opens the lock file, for writing if possible: flock(2) needs only a descriptor.
func openLock(path string) (*os.File, error) {
	f, err := openPrivate(path, os.O_RDWR|os.O_CREATE)
	if errors.Is(err, syscall.EROFS) {
		return openPrivate(path, os.O_RDONLY)
	}
	return f, err
}

// isReadOnly reports whether dir is on a read-only file system.
func isReadOnly(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err == nil {
		err = f.Close()
	}
	return errors.Is(err, syscall.EROFS)
}

// readAudit opens the log at the head that the database names. The outbox stays for the next chatd
// that can write.
func (s *Store) readAudit(kept head) error {
	f, err := openPrivate(filepath.Join(s.opts.Dir, auditName), os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("cannot open audit log: %w", err)
	}
	s.log = &auditLog{file: f, head: kept, onDisk: kept, refuses: ErrReadOnly}
	s.broken, s.behind = ErrReadOnly, ErrReadOnly
	return nil
}
