package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestLockShared: files that all sessions share are locked until they are unlocked, and named as
// a session sees them. If one cannot be locked, none stays locked.
func TestLockShared(t *testing.T) {
	shim := filepath.Join(t.TempDir(), "chatd-shim")
	s := New(Options{Shim: shim})
	if inside, _, err := s.LockShared(); !errors.Is(err, os.ErrNotExist) || inside != nil {
		t.Errorf("without a shim: %q, %v", inside, err)
	}
	must.Do(t, os.WriteFile(shim, nil, 0o600))
	f := must.Get(os.Open(shim))(t)
	defer f.Close()
	take := func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	inside, unlock, err := s.LockShared()
	must.True(t, err == nil && slices.Equal(inside, []string{"/usr", "/dev/null", plan.InsideShim}),
		"%q, %v", inside, err)
	expect.Is(t, take(), unix.EWOULDBLOCK, "the file is not locked")
	unlock()
	if err := take(); err != nil {
		t.Errorf("the file is still locked: %v", err)
	}
	if inside, _, err := s.LockShared(); !errors.Is(err, unix.EWOULDBLOCK) || inside != nil {
		t.Errorf("a file that another holds: %q, %v", inside, err)
	}
}
