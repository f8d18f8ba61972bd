package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate sets blocks aside for the first size bytes of f, whose length stays as it is
// (fallocate(2)).
func allocate(f *os.File, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}

// freeBytes is what is left on the file system of path, for root too.
func freeBytes(path string) (free uint64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Blocks == 0 {
		return 0, false
	}
	return st.Bfree * uint64(st.Bsize), true
}
