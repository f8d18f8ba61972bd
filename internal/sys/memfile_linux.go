package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MemFile returns an anonymous file (memfd_create(2)) that holds content, at its beginning.
func MemFile(name string, content []byte) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("chatd-"+filepath.Base(name), flags)
	if err != nil {
		return nil, fmt.Errorf("cannot make a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(content); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot fill a memory file: %w", err), f.Close())
	}
	return f, nil
}

// SealAt fixes the size of a memory file, so that no holder of a descriptor can make it grow
// (F_ADD_SEALS, fcntl(2)).
func SealAt(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("cannot size a memory file: %w", err)
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK)
	if err != nil {
		return fmt.Errorf("cannot seal a memory file: %w", err)
	}
	return nil
}
