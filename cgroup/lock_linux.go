package cgroup

import (
	"errors"
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// holdBase takes the base for this daemon alone (flock(2) on the directory). A daemon ends
// everything in it that belongs to no chat that it knows. A second daemon with another state
// directory would so end the first one's sessions.
func (f *FS) holdBase() error {
	dir, err := os.Open(f.bases.Unified)
	if err != nil {
		return fmt.Errorf("cannot lock the base cgroup: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another chatd holds it; give one of them another cgroup name: %w", chat.ErrBusy)
		}
		return errors.Join(fmt.Errorf("cannot lock the base cgroup %s: %w", f.bases.Unified, err),
			dir.Close())
	}
	f.base = dir
	return nil
}

// Close gives the base up. Cgroups, limits and who is inside stay as they are.
func (f *FS) Close() error {
	if f.base == nil {
		return nil
	}
	return f.base.Close()
}
