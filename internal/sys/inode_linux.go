package sys

import "golang.org/x/sys/unix"

// InodeOf is the inode in what statx(2) gave.
func InodeOf(st *unix.Statx_t) Inode { return Inode{st.Dev_major, st.Dev_minor, st.Ino} }

// StatFD returns the mount, device and inode of fd. It does not wait for a network file system.
func StatFD(fd int) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC,
		unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	return st, err
}
