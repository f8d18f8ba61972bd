package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MakeFIFO makes a fifo that belongs to uid (mkfifo(3)), in a directory of root's.
func MakeFIFO(name string, uid uint32) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return fmt.Errorf("cannot make %s: %w", name, err)
	}
	if err := os.Lchown(name, int(uid), int(uid)); err != nil {
		return fmt.Errorf("cannot give %s to uid %d: %w", name, uid, err)
	}
	return nil
}

// OpenFIFO opens a fifo for reading and writing, so that neither side waits for the other
// (fifo(7)).
func OpenFIFO(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", name, err)
	}
	return f, nil
}
