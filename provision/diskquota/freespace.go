package diskquota

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Room says which of chatd's own directories are on a file system that chats can write, and what is
// left for root there when they fill it. findings are those where nothing is.
func (d *Disks) Room(own ...string) (words string, findings []string) {
	shared := map[string]bool{}
	for _, dir := range d.dirs {
		if pool, err := d.kernel.pool(dir); err == nil {
			shared[pool] = true
		}
	}
	var parts []string
	for _, dir := range own {
		pool, err := d.kernel.pool(dir)
		if err != nil {
			continue
		}
		if !shared[pool] {
			parts = append(parts, fmt.Sprintf("no chat fills the file system of %s", dir))
			continue
		}
		mib := reserved(dir)
		if mib == 0 {
			findings = append(findings, fmt.Sprintf("chats can fill the file system of %s, and it "+
				"reserves nothing for root: move it to an ext4 with reserved blocks "+
				"(tune2fs -m)", dir))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d MiB are reserved for root on the file system "+
			"of %s, which chats share", mib, dir))
	}
	return strings.Join(parts, "; "), findings
}

// reserved is how many MiB of a file system root alone can write.
func reserved(dir string) uint64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return reservedOf(st)
}

func reservedOf(st unix.Statfs_t) uint64 {
	// Of btrfs the difference is what is not allocated yet, and nobody's.
	if st.Bfree < st.Bavail || st.Type == unix.BTRFS_SUPER_MAGIC {
		return 0
	}
	return (st.Bfree - st.Bavail) * uint64(st.Bsize) >> 20
}
