package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Make makes a cgroup, which only root may list; one that is there stays as it is.
func Make(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot create a cgroup: %w", err)
	}
	return nil
}

// rmdirTimeout is for the last process of a cgroup, which has ended and still leaves it. A host
// that is very busy lets it wait for its turn.
const rmdirTimeout = 10 * time.Second

// Remove removes one empty cgroup. The last process leaves a moment after it is
// seen to be gone, so EBUSY counts only while it stays.
func Remove(dir string) error {
	err := unix.Rmdir(dir)
	end := time.Now().Add(rmdirTimeout)
	wait := time.Millisecond
	for ; err == unix.EBUSY && time.Now().Before(end); wait = min(2*wait, 100*time.Millisecond) {
		if full, perr := Populated(dir); full || perr != nil && !errors.Is(perr, fs.ErrNotExist) {
			break
		}
		time.Sleep(wait)
		err = unix.Rmdir(dir)
	}
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EBUSY:
		return fmt.Errorf("cannot remove the cgroup %s: %w", dir, errors.Join(chat.ErrBusy, err))
	}
	return fmt.Errorf("cannot remove the cgroup %s: %w", dir, err)
}

// RemoveTree removes a cgroup and those below it, the deepest first. Only
// directories: the files of a cgroup go with it.
func RemoveTree(dir string) error {
	below, err := Below(dir)
	for _, name := range below {
		err = errors.Join(err, RemoveTree(filepath.Join(dir, name)))
	}
	if err != nil {
		return err
	}
	return Remove(dir)
}

// Below are the names of the cgroups right below dir; none if that is gone.
func Below(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list a cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
