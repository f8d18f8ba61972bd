package diskquota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// What a try may have, and what it attempts to take.
const (
	tryKiB    = 256
	tryInodes = 8
	tryMost   = 1 << 10 // KiB, and files
)

// Try writes over a limit of bytes and one of inodes on each file system that enforces limits, as
// the uid, which no chat has, in a directory of the given name. tried are the directories where
// both were refused with EDQUOT.
func (d *Disks) Try(name string, uid uint32) (tried []string, err error) {
	dirs, err := d.bounded()
	for _, dir := range dirs {
		if err := d.try(dir, name, uid); err != nil {
			return tried, fmt.Errorf("in %s: %w", dir, err)
		}
		tried = append(tried, dir)
	}
	return tried, err
}

func (d *Disks) try(dir, name string, uid uint32) (err error) {
	defer func() {
		err = errors.Join(err, d.kernel.set(dir, uid, dqblk{}), safefs.Remove(dir, name))
	}()
	if err := safefs.Remove(dir, name); err != nil {
		return err
	}
	limit := dqblk{hardKiB: tryKiB, hardInodes: tryInodes}
	if err := d.kernel.set(dir, uid, limit); err != nil {
		return err
	}
	own, err := makeOwned(filepath.Join(dir, name), uid)
	if err != nil {
		return fmt.Errorf("cannot try a quota: %w", err)
	}
	defer own.Close()
	return sys.AsUID(uid, func() error { return overLimit(int(own.Fd())) })
}

// makeOwned makes a directory of the uid, and opens it: its parent may be closed to the uid.
func makeOwned(dir string, uid uint32) (*os.File, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	own, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := own.Chown(int(uid), int(uid)); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return own, nil
}

// overLimit takes more than the limits in dir. An error other than EDQUOT is returned.
func overLimit(dir int) error {
	const flags = unix.O_CREAT | unix.O_WRONLY | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, "bytes", flags, 0o600)
	if err != nil {
		return fmt.Errorf("cannot try a quota: %w", err)
	}
	defer unix.Close(fd)
	err = refused("bytes", func(int) error {
		_, err := unix.Write(fd, make([]byte, 1024))
		return err
	})
	return errors.Join(err, unix.Ftruncate(fd, 0), refused("inodes", func(i int) error {
		file, err := unix.Openat(dir, strconv.Itoa(i), flags, 0o600)
		if err == nil {
			err = unix.Close(file)
		}
		return err
	}))
}

// refused takes until the kernel says EDQUOT.
func refused(what string, take func(int) error) error {
	for i := range tryMost {
		err := take(i)
		if errors.Is(err, unix.EDQUOT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot try a quota: %w", err)
		}
	}
	return fmt.Errorf("a quota of %s did not hold: %d were taken", what, tryMost)
}
