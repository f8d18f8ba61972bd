package sys

import (
	"os"
	"syscall"
)

// OwnerOf returns the owner and the group of a file, both ^0 where fi does not have them.
func OwnerOf(fi os.FileInfo) (uid, gid uint32) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Uid, st.Gid
	}
	return ^uint32(0), ^uint32(0)
}
