package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// TryNames reports whether the kernel can report the names that are made on dir's file system, as
// the enforcer of file rules asks (fanotify_mark(2)): overlayfs has no handles for that.
func TryNames(dir string) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_DFID_NAME|unix.FAN_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fanotify_init: %w", err)
	}
	defer unix.Close(fd)
	const flags = unix.FAN_MARK_ADD | unix.FAN_MARK_FILESYSTEM
	err = unix.FanotifyMark(fd, flags, unix.FAN_CREATE, unix.AT_FDCWD, dir)
	if err != nil {
		return fmt.Errorf("fanotify_mark: %w", err)
	}
	return nil
}
