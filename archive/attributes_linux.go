package archive

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// listAttributes names the extended attributes of the user namespace.
func listAttributes(f *os.File) (names []string, err error) {
	n, err := unix.Flistxattr(int(f.Fd()), nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, 64<<10) // the kernel's XATTR_LIST_MAX
	if n, err = unix.Flistxattr(int(f.Fd()), b); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	return names, nil
}
