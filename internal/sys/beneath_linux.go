package sys

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenBeneath opens name below dir. It follows no link and never leaves dir.
func OpenBeneath(dir int, name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	return Openat2(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// OpenPath opens what path is below dir as a place (O_PATH), by [OpenBeneath], and looks at it. The
// path may be absolute: dir is its root.
func OpenPath(dir int, path string) (fd int, st unix.Statx_t, err error) {
	if fd, err = OpenBeneath(dir, strings.TrimPrefix(path, "/"), unix.O_PATH); err != nil {
		return -1, st, err
	}
	if st, err = StatFD(fd); err != nil {
		return -1, st, errors.Join(err, unix.Close(fd))
	}
	return fd, st, nil
}

// OpenOnMount is OpenBeneath that crosses no mount either.
func OpenOnMount(dir int, name string, flags uint64) (int, error) {
	return Openat2(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// Gone reports whether an entry was removed or replaced, by the error of an open
// beneath a directory.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// Rest is the path from dir to p, which is at or under it; empty for dir itself.
func Rest(p, dir string) string { return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/") }
