package orders

import (
	"errors"
	"fmt"
	"os"
	"path"
)

// MakeMasks creates [ClosedDirectory] and [ClosedFile], an empty directory and an empty file
// without a mode, in a directory of root.
func MakeMasks(dir string) error {
	d, f := path.Join(dir, ClosedDirectory), path.Join(dir, ClosedFile)
	if err := os.Mkdir(d, 0); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	file, err := os.OpenFile(f, os.O_CREATE|os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	if err := errors.Join(file.Close(), os.Chmod(d, 0), os.Chmod(f, 0)); err != nil {
		return fmt.Errorf("cannot make a mask: %w", err)
	}
	return nil
}
