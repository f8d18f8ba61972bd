package homedir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

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
