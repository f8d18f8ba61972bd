package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
)

// TestLockShared: files that all sessions share are locked until they are unlocked, and named as
// a session sees them. If one cannot be locked, none stays locked.
func TestLockShared(t *testing.T) {
	shim := filepath.Join(t.TempDir(), "chatd-shim")
	s := New(Options{Shim: shim})
	if inside, _, err := s.LockShared(); !errors.Is(err, os.ErrNotExist) || inside != nil {
		t.Errorf("without a shim: %q, %v", inside, err)
	}
	if err := os.WriteFile(shim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(shim)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	take := func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	inside, unlock, err := s.LockShared()
	if err != nil || !slices.Equal(inside, []string{"/usr", "/dev/null", plan.InsideShim}) {
		t.Fatalf("%q, %v", inside, err)
	}
	if err := take(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the file is not locked: %v", err)
	}
	unlock()
	if err := take(); err != nil {
		t.Errorf("the file is still locked: %v", err)
	}
	if inside, _, err := s.LockShared(); !errors.Is(err, unix.EWOULDBLOCK) || inside != nil {
		t.Errorf("a file that another holds: %q, %v", inside, err)
	}
}
