package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves blocks for the first size bytes of f without changing its length
// (fallocate(2)).
func allocate(f *os.File, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// freeBytes is the free space of path's file system, blocks reserved for root included.
func freeBytes(path string) (free uint64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return st.Bfree * uint64(st.Bsize), true
}
