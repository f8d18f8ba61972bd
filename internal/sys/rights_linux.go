package sys

import (
	"errors"

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

// CloseAll closes descriptors, all of them whatever one of them says.
func CloseAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
