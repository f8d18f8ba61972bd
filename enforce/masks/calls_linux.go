package masks

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// openTree returns a detached copy of fd's mount, from fd down (open_tree(2)). The copy is private.
// Under systemd the host's mounts are shared. A shared copy would be their peer, and mounts on it
// would propagate to the host and to every other copy.
func openTree(fd int) (int, error) { return copyTree(fd, 0) }

// CopyBase is openTree of one of bubblewrap's mounts. A submount of the host inside that mount is
// locked to it: the kernel does not copy one without the other (EINVAL, mount_namespaces(7)). The
// copy then has both, and the walk stops at the submount, which is a base of its own.
func CopyBase(fd int) (int, error) {
	tree, err := copyTree(fd, 0)
	if errors.Is(err, unix.EINVAL) {
		return copyTree(fd, unix.AT_RECURSIVE)
	}
	return tree, err
}

// copyTree copies one mount, or with AT_RECURSIVE also the mounts below it.
func copyTree(fd int, recursive uint) (int, error) {
	tree, err := unix.OpenTree(fd, "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|recursive)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive,
		&unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("mount_setattr: %w", err)
	}
	return tree, nil
}

// moveBeneath is MOVE_MOUNT_BENEATH of Linux 6.5: it attaches below the mount whose root is target.
const moveBeneath = 0x200

// moveMount attaches the detached tree over target (move_mount(2)).
func moveMount(tree, target, flags int) error {
	err := unix.MoveMount(tree, "", target, "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH|flags)
	if err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// setReadOnly makes one mount read-only or writable. The kernel returns EBUSY while a file is open
// for writing through the mount, or made there. The latter is short, so setReadOnly tries again for
// 100 ms.
func setReadOnly(tree int, readOnly bool) error {
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if readOnly {
		attr = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	}
	for try := 0; ; try++ {
		err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
		if err == nil {
			return nil
		}
		if err != unix.EBUSY || try == 50 {
			return fmt.Errorf("mount_setattr: %w", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// newTmpfs returns a detached tmpfs of 1 MiB whose root has no mode.
func newTmpfs() (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{{"size", "1m"}, {"mode", "0"}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("fsconfig %s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig: %w", err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsmount: %w", err)
	}
	return tree, nil
}
