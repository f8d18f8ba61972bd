package stream

import (
	"os"

	"golang.org/x/sys/unix"
)

// enough is an amount of free space, in bytes, that suffices on a file system of any size.
const enough = 256 << 20

// HasSpace reports whether more than one part in parts of f's file system is free, or enough.
func HasSpace(f *os.File, parts uint64) bool {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return false
	}
	return s.Blocks == 0 || s.Bavail > s.Blocks/parts || s.Bavail > enough/uint64(s.Bsize)
}
