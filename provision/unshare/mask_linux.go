package unshare

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// maskedFiles and maskedDirs are the host-wide counters in /proc that ordinary programs do not
// need; see the package documentation for those that stay.
var (
	maskedFiles = []string{
		"/proc/buddyinfo", "/proc/cgroups", "/proc/crypto", "/proc/diskstats", "/proc/interrupts",
		"/proc/key-users",
		"/proc/keys", "/proc/latency_stats", "/proc/locks", "/proc/mdstat", "/proc/modules",
		"/proc/pagetypeinfo", "/proc/sched_debug",
		"/proc/schedstat", "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/timer_list",
		"/proc/vmallocinfo",
		"/proc/vmstat", "/proc/zoneinfo",
		"/proc/sys/fs/aio-nr", "/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
		"/proc/sys/fs/inode-state", "/proc/sys/kernel/pty/nr", "/proc/sys/kernel/random/entropy_avail",
		"/proc/sys/net/netfilter/nf_conntrack_count",
	}
	maskedDirs = []string{"/proc/acpi", "/proc/bus", "/proc/driver", "/proc/irq", "/proc/pressure",
		"/proc/scsi", "/proc/sys/fs/quota"}
)

// Mask masks, in the session of p, counters of the whole host: files and directories appear
// empty. /proc/sys becomes read-only.
func Mask(p *sys.ProcessHandle) error { return In(p, mask) }

// maskFlags are those of every mount over /proc.
const maskFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

func mask() error {
	err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|maskFlags, "")
	}
	if err != nil {
		return fmt.Errorf("cannot make /proc/sys read-only: %w", err)
	}
	if err := makeEmpty(); err != nil {
		return fmt.Errorf("cannot make a file to mask others with: %w", err)
	}
	for _, file := range maskedFiles {
		if err := maskPath(emptyFile, file); err != nil {
			return err
		}
	}
	for _, dir := range slices.Concat(maskedDirs, []string{emptyAt}) { // emptyAt, their source, last
		if err := maskPath(emptyDir, dir); err != nil {
			return err
		}
	}
	return nil
}

// Where Mask makes the empty file and directory that mask the others. Every kernel has
// that directory, and Mask masks it too.
const (
	emptyAt   = "/proc/fs"
	emptyFile = emptyAt + "/file"
	emptyDir  = emptyAt + "/dir"
)

func makeEmpty() error {
	err := unix.Mount("chatd", emptyAt, "tmpfs", maskFlags, "size=4k,nr_inodes=4,mode=555")
	if err == nil {
		err = unix.Mkdir(emptyDir, 0o555)
	}
	if err == nil {
		err = unix.Mknod(emptyFile, unix.S_IFREG|0o444, 0)
	}
	if err != nil {
		return err
	}
	return unix.Mount("", emptyAt, "", unix.MS_REMOUNT|unix.MS_RDONLY|maskFlags, "")
}

// maskPath mounts an empty file or directory over a path, if that exists.
func maskPath(empty, path string) error {
	if err := unix.Mount(empty, path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot mask %s: %w", path, err)
	}
	return nil
}
