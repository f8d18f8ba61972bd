package homedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// triedName is the home that [Try] makes and removes.
const triedName = "probe-home"

// Try makes a home for the uid below uid in the root-owned directory homes, with mode, tries as
// uid to get past it, and removes it again. Neither uid may be a chat's.
func Try(homes string, uid uint32, mode os.FileMode) error {
	err := MakeOwned(homes, triedName, uid-1, mode, "")
	if err == nil {
		err = TryToEnter(homes, triedName, uid)
	}
	return errors.Join(err, safefs.Remove(homes, triedName))
}

// TryToEnter tries as uid to open another's home in the directory homes, to list homes and to make
// one. It returns nil if all attempts were refused. A missing home is an error, because it excludes
// no user.
func TryToEnter(homes, name string, uid uint32) error {
	home := filepath.Join(homes, name)
	if fi, err := os.Lstat(home); err != nil || !fi.IsDir() {
		return fmt.Errorf("cannot try to enter %s: want a directory: %w",
			home, errors.Join(err, chat.ErrNotFound))
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	return sys.AsUID(uid, func() error {
		for _, dir := range []string{home, home + "/.", homes} {
			if fd, err := unix.Open(dir, flags, 0); err == nil {
				err = fmt.Errorf("cannot keep uid %d out: it opened %s", uid, dir)
				return errors.Join(err, unix.Close(fd))
			}
		}
		made := filepath.Join(homes, "probe-made")
		if err := unix.Mkdir(made, 0o700); err == nil {
			err = fmt.Errorf("cannot keep uid %d out: it made a directory in %s", uid, homes)
			return errors.Join(err, os.Remove(made))
		}
		return nil
	})
}

// TryReflinks tries whether files in the root-owned directory homes can share their content
// (ioctl_ficlone(2)).
func TryReflinks(homes string) error {
	var files [2]*os.File
	for i := range files {
		fd, err := unix.Open(homes, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return fmt.Errorf("cannot try reflinks among homes: %w", err)
		}
		files[i] = os.NewFile(uintptr(fd), homes)
		defer files[i].Close()
	}
	_, err := files[0].Write([]byte("x"))
	if err == nil {
		err = unix.IoctlFileClone(int(files[1].Fd()), int(files[0].Fd()))
	}
	if err != nil {
		return fmt.Errorf("the file system of homes has no reflinks: %w", err)
	}
	return nil
}
