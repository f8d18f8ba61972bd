package provision

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// asUID runs f on a thread of its own that has the real, effective and saved
// uid and gid and no other group, so that the kernel judges f's system calls as
// it would judge that user's. Credentials are per thread in the kernel, and the
// raw calls below change this thread's alone; it ends with the goroutine, for a
// thread that gave up root is no use to anybody else.
//
// The main thread is passed over: it never ends, and it is what /proc/PID shows
// of the whole daemon.
func asUID(uid uint32, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- asUID(uid, f)
			runtime.UnlockOSThread()
			return
		}
		// Not unlocked on this path: the runtime ends the thread.
		err := becomeThread(uid)
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// becomeThread drops groups, gid, uid, in that order, and then looks.
func becomeThread(uid uint32) error {
	id := uintptr(uid)
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id},
	} {
		if _, _, e := unix.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
			return fmt.Errorf("cannot become uid %d: %w", uid, e)
		}
	}
	got, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0)
	if got != id {
		return fmt.Errorf("cannot become uid %d: the kernel says %d", uid, got)
	}
	return nil
}
