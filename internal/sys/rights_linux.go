package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Rights returns the descriptors in the control messages that came with a message (SCM_RIGHTS,
// unix(7)); also with an error, those that were found.
func Rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		more, parseErr := unix.ParseUnixRights(&m)
		fds, err = append(fds, more...), errors.Join(err, parseErr)
	}
	return fds, err
}

// FDs returns the descriptors of files to pass. It leaves them non-blocking, as [os.File.Fd] would not.
func FDs(files []*os.File) ([]int, error) {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return nil, fmt.Errorf("cannot pass %s: %w", f.Name(), err)
		}
	}
	return fds, nil
}

// CloseAll closes descriptors, all of them whatever one of them says.
func CloseAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
