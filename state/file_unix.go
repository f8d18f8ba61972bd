//go:build linux || darwin

package state

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
)

// lockTimeout is how long Open waits for a held lock. A chatd that is killed between fork and exec
// leaves its descriptors, and so the lock, to the child until the exec. A service manager may
// restart chatd sooner.
const lockTimeout = 3 * time.Second

// lockFile holds an exclusive flock(2) on path until the file is closed. The kernel releases it
// however the process ends; unlike a pid file, it cannot name a recycled pid.
func lockFile(path string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open lock %s: %w", path, err)
	}
	end := time.Now().Add(lockTimeout)
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	switch {
	case err == nil:
		err = checkSame(f, path)
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("another chatd holds it: %w", chat.ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// letGo unlocks and closes a file that bbolt left open when it panicked. Its memory map, which stays,
// would hold the lock. bbolt has closed it itself after any other error.
func letGo(f *os.File) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err == nil {
		_ = f.Close() // only read
	}
}

// checkSame refuses an open file that path no longer names: if another file replaced it, two
// processes could each hold a lock.
func checkSame(f *os.File, path string) error {
	here, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(here, there) {
		return fmt.Errorf("the file was replaced meanwhile: %w", chat.ErrBusy)
	}
	return nil
}

// openPrivate opens or creates a regular file for its owner alone: mode 0600 whatever the umask,
// never through a symbolic link.
func openPrivate(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkPrivate(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return chat.Invalid("cannot use %s: it is no regular file", f.Name())
	}
	if m := fi.Mode().Perm(); m&^0o600 != 0 {
		return chat.Invalid("cannot use %s: its mode is %04o, want 0600", f.Name(), m)
	}
	return checkOwner(f.Name(), fi)
}

// checkDir refuses a directory whose entries another user could replace.
func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot use state directory %s: %w", dir, err)
	}
	if !fi.IsDir() || fi.Mode().Perm()&0o022 != 0 {
		return chat.Invalid("cannot use state directory %s: its mode is %s, want a directory that only its owner may write", dir, fi.Mode())
	}
	return checkOwner(dir, fi)
}

func checkOwner(name string, fi os.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("cannot tell the owner of %s: %w", name, chat.ErrUnsupported)
	}
	if int(st.Uid) != os.Geteuid() {
		return chat.Invalid("cannot use %s: it belongs to uid %d, want %d", name, st.Uid, os.Geteuid())
	}
	return nil
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
