package keeper

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// maskPair are an empty directory and an empty file, root's, with no mode at all, in
// the keeper's own directory.
type maskPair struct{ dir, file int }

func (p maskPair) of(dir bool) int {
	if dir {
		return p.dir
	}
	return p.file
}

// makeMasks makes the two files that covers are copies of, in a directory of root's.
func makeMasks(dir string) (maskPair, error) {
	var p maskPair
	d, f := path.Join(dir, "closed-directory"), path.Join(dir, "closed-file")
	if err := os.Mkdir(d, 0); err != nil && !errors.Is(err, os.ErrExist) {
		return p, fmt.Errorf("cannot make a mask: %w", err)
	}
	file, err := os.OpenFile(f, os.O_CREATE|os.O_RDONLY, 0)
	if err != nil {
		return p, fmt.Errorf("cannot make a mask: %w", err)
	}
	if err := errors.Join(file.Close(), os.Chmod(d, 0), os.Chmod(f, 0)); err != nil {
		return p, fmt.Errorf("cannot make a mask: %w", err)
	}
	if p.dir, err = unix.Open(d, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		p.file, err = unix.Open(f, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return p, fmt.Errorf("cannot open a mask: %w", err)
	}
	return p, nil
}
