package unshare

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maskedFiles and maskedDirs are what /proc shows of the whole host and ordinary
// programs do not need; see the package documentation for what stays.
var (
	maskedFiles = []string{
		"/proc/buddyinfo", "/proc/cgroups", "/proc/crypto", "/proc/diskstats", "/proc/interrupts", "/proc/key-users",
		"/proc/keys", "/proc/latency_stats", "/proc/locks", "/proc/mdstat", "/proc/modules", "/proc/pagetypeinfo", "/proc/sched_debug",
		"/proc/schedstat", "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/timer_list", "/proc/vmallocinfo",
		"/proc/vmstat", "/proc/zoneinfo",
		"/proc/sys/fs/aio-nr", "/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
		"/proc/sys/fs/inode-state", "/proc/sys/kernel/pty/nr", "/proc/sys/kernel/random/entropy_avail", "/proc/sys/net/netfilter/nf_conntrack_count",
	}
	maskedDirs = []string{"/proc/acpi", "/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/scsi", "/proc/sys/fs/quota"}
)

// Mask covers, in the session of p, counters of the whole host: a file reads as empty,
// a directory has nothing in it. /proc/sys is read-only.
func Mask(p Process) error { return In(p, mask) }

func mask() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
	}
	if err != nil {
		return fmt.Errorf("cannot make /proc/sys read-only: %w", err)
	}
	for _, file := range maskedFiles {
		if err := unix.Mount("/dev/null", file, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cannot mask %s: %w", file, err)
		}
	}
	empty := ""
	for _, dir := range maskedDirs {
		err := error(nil)
		if empty == "" {
			err = unix.Mount("chatd", dir, "tmpfs", unix.MS_RDONLY|flags, "size=4k,nr_inodes=2,mode=555")
		} else {
			err = unix.Mount(empty, dir, "", unix.MS_BIND, "")
		}
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot mask %s: %w", dir, err)
		}
		empty = dir
	}
	return nil
}
