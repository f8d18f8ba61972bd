package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// InMountNamespace runs do on a thread of its own that has joined the mount namespace ns, with its
// working directory at the root there. The thread ends afterwards ([OnThread]), so that no other code
// of this program runs in the namespace.
func InMountNamespace(ns *os.File, do func() error) error {
	return OnThread(func() error {
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = OnDescriptor(ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNS) })
		}
		if err != nil {
			return fmt.Errorf("cannot join a mount namespace: %w", err)
		}
		return do()
	})
}

// InOwnNamespace runs do on another thread, in the program's own mount namespace. Callers are on a
// thread that has joined another.
func InOwnNamespace(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// OnDescriptor calls do with f's descriptor, which stays open meanwhile. A closed f is
// os.ErrClosed.
func OnDescriptor(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if conn.Control(func(fd uintptr) { err = do(int(fd)) }) != nil {
		return os.ErrClosed // its own error is of an internal package
	}
	return err
}
