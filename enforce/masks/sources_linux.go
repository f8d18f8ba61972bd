package masks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Sources are an empty directory, at true, and an empty file, of root and without a mode: what
// masks are copies of.
type Sources map[bool]int

// OpenSources opens the directory and the file that masks are copies of.
func OpenSources(dir, file string) (Sources, error) {
	s := Sources{}
	for isDir, name := range map[bool]string{true: dir, false: file} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot open a mask: %w", err)
		}
		s[isDir] = fd
	}
	return s, nil
}
