package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk returns the whole disk under path as "major:minor", which is how bounds on block I/O name
// it. It is empty for a file system in memory. The disk of a partition is the disk that it is a
// part of. A volume of LVM, an array and a loop device are disks themselves.
//
// A file system with a device number of its own, as btrfs, is on the device that it was mounted
// from, and maybe on others too. Where that is not a block device, as under overlay, the error wraps
// [errors.ErrUnsupported].
func Disk(path string) (string, error) {
	st, m, err := mountOf(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot find the disk of %s: %w", path, err)
	case st.Dev_major != 0:
		return wholeDisk("/sys/dev/block", fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor))
	}
	return diskOf(path, m)
}

// mountOf finds the mount that has path, if path's device does not say it all.
func mountOf(path string) (st unix.Statx_t, m Mount, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	if err != nil || st.Dev_major != 0 {
		return st, m, err
	}
	mounts, err := ReadMounts("/proc/self/mountinfo")
	if err != nil {
		return st, m, err
	}
	for _, m := range mounts {
		if uint64(m.ID) == st.Mnt_id {
			return st, m, nil
		}
	}
	return st, m, fmt.Errorf("no mount has it: %w", errors.ErrUnsupported)
}

// Pool names what the file system of path takes its space from: file systems of one pool fill each
// other. It is the device, except for btrfs and ZFS, whose subvolumes and datasets have devices of
// their own.
func Pool(path string) (string, error) {
	st, m, err := mountOf(path)
	if err != nil {
		return "", fmt.Errorf("cannot find the file system of %s: %w", path, err)
	}
	return poolOf(m, fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)), nil
}

// poolOf is the pool of a mount on the device dev.
func poolOf(m Mount, dev string) string {
	switch m.Kind {
	case "btrfs", "bcachefs": // the kernel gives all mounts of one the same source
		return m.Kind + " " + m.Source
	case "zfs":
		pool, _, _ := strings.Cut(m.Source, "/")
		return "zfs " + pool
	}
	return dev
}

// diskOf asks by what a file system was mounted from.
func diskOf(path string, m Mount) (string, error) {
	if m.Kind == "tmpfs" || m.Kind == "ramfs" {
		return "", nil
	}
	var st unix.Stat_t
	found := filepath.IsAbs(m.Source) && unix.Stat(m.Source, &st) == nil
	if !found || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("cannot find the disk of %s: its file system, %s, names none: %w",
			path, m.Kind, errors.ErrUnsupported)
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return wholeDisk("/sys/dev/block", dev)
}

// wholeDisk looks in sysfs, where a partition is a directory in that of its disk. The kernel
// resolves the "..", for the entries are links.
func wholeDisk(blocks, dev string) (string, error) {
	_, err := os.Stat(blocks + "/" + dev + "/partition")
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(blocks + "/" + dev)
		if err == nil {
			return dev, nil
		}
	}
	if err == nil {
		var disk []byte
		disk, err = os.ReadFile(blocks + "/" + dev + "/../dev")
		if err == nil {
			return strings.TrimSpace(string(disk)), nil
		}
	}
	return "", fmt.Errorf("cannot find the disk of device %s: %w", dev, err)
}
