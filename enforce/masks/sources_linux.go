package masks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Sources are an empty directory and an empty file of root without a mode: what
// masks are copies of.
type Sources struct{ dir, file int }

func (p Sources) of(dir bool) int {
	if dir {
		return p.dir
	}
	return p.file
}

// OpenSources opens the directory and the file that masks are copies of.
func OpenSources(dir, file string) (p Sources, err error) {
	if p.dir, err = unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		p.file, err = unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return p, fmt.Errorf("cannot open a mask: %w", err)
	}
	return p, nil
}
