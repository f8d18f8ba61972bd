package plan

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hasFileCapabilities reports whether a file has the extended attribute of capabilities(7). A
// file system without attributes has none.
func hasFileCapabilities(path string) (bool, error) {
	_, err := unix.Lgetxattr(path, "security.capability", nil)
	switch err {
	case nil:
		return true, nil
	case unix.ENODATA, unix.ENOTSUP:
		return false, nil
	}
	return false, fmt.Errorf("cannot read the capabilities of %s: %w", path, err)
}
