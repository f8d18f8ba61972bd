package sys

import "golang.org/x/sys/unix"

// Openat2 is openat2(2), asked again while a rename or a mount anywhere on the host makes the
// kernel unsure of a ".." (EAGAIN). The bound is there because a chat can rename for ever.
func Openat2(dir int, name string, how *unix.OpenHow) (fd int, err error) {
	for range 10_000 {
		fd, err = unix.Openat2(dir, name, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return fd, err
}
