package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// A copy of the database is whole if no commit ended while it was made. A daemon that commits
// without a pause would leave no such moment, so a copy locks a file (flock(2)), and a daemon
// begins no commit while that is locked: for a second at most, and then not for a while, so that a
// process that was stopped with the lock does not hold it up. Only root can open the file.
const (
	holdName   = "snapshot.lock"
	holdMax    = time.Second      // how long a commit waits
	holdIgnore = 10 * time.Second // how long none waits after one that waited in vain
)

// hold is the daemon's side of the lock.
type hold struct {
	file   *os.File
	ignore time.Time // until then no commit waits
}

// openHold makes the file if need be. A full disk is no reason not to start: there is no lock then.
func openHold(dir string) (*hold, error) {
	f, err := openPrivate(filepath.Join(dir, holdName), os.O_RDWR|os.O_CREATE)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &hold{file: f}, nil
}

// wait returns when no copy is made, or after holdMax. The caller holds writer.
func (h *hold) wait() {
	if h == nil || time.Now().Before(h.ignore) {
		return
	}
	for end := time.Now().Add(holdMax); isLocked(h.file); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.ignore = time.Now().Add(holdIgnore)
			return
		}
	}
}

func (h *hold) close() error {
	if h == nil {
		return nil
	}
	return h.file.Close()
}

// holdCommits keeps a daemon from beginning a commit until release is called. A state that only
// former daemons had lacks the file.
func holdCommits(dir string) (release func() error, err error) {
	f, err := openPrivate(filepath.Join(dir, holdName), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	if err := lockShared(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
