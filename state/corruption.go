package state

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
)

// guarded runs do, which reads the database at path for the first time. bbolt panics at a page that
// is none, and the kernel faults where a page is behind the end of the file: both are an error here
// ([debug.SetPanicOnFault]).
func guarded(path string, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if what := recover(); what != nil {
			err = damaged(path, fmt.Errorf("%v", what))
		}
	}()
	return do()
}

func damaged(path string, why error) error {
	return chat.Invalid("%s is damaged: restore it from a backup (specs/0010): %w", path, why)
}

// cannotOpen is the error of opening the database at path. An error that is neither the kernel's nor
// a check's of this package is bbolt's about the content.
func cannotOpen(path string, err error) error {
	var kernel syscall.Errno
	switch {
	case errors.Is(err, bolterr.ErrTimeout):
		return fmt.Errorf("cannot open %s: another process has it open: %w", path, chat.ErrBusy)
	case errors.As(err, &kernel), errors.Is(err, chat.ErrInvalid):
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	return fmt.Errorf("cannot open the database: %w", damaged(path, err))
}

// wholeFile refuses a database that is shorter than its pages: bbolt notices only when it needs one
// that is not there.
func wholeFile(tx *bbolt.Tx, path string, f *os.File) error {
	fi, err := f.Stat()
	if err == nil && fi.Size() < tx.Size() {
		err = damaged(path, fmt.Errorf("it has %d bytes, want %d", fi.Size(), tx.Size()))
	}
	return err
}
