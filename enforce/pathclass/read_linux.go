package pathclass

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// dirent is one entry of getdents64(2).
type dirent struct {
	kind uint8
	name string
}

// readDirents calls each for what fd, an open directory, holds, but . and ..; it
// needs buf for itself.
func readDirents(fd int, buf []byte, each func(dirent) error) error {
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for rest := buf[:n]; len(rest) >= 19; {
			size := int(binary.NativeEndian.Uint16(rest[16:]))
			if size < 19 || size > len(rest) {
				return fmt.Errorf("cannot read an entry of %d bytes", size)
			}
			name, _, _ := strings.Cut(string(rest[19:size]), "\x00")
			if name != "." && name != ".." {
				if err := each(dirent{rest[18], name}); err != nil {
					return err
				}
			}
			rest = rest[size:]
		}
	}
}
