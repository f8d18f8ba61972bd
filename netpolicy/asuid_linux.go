package netpolicy

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// asUID runs f on a thread that has become uid for good, and waits for it.
// Sockets that f makes or accepts belong to uid: the owner match asks who made
// the file (xt_owner, by f_cred->fsuid). The thread is thrown away afterwards,
// because a goroutine that ends locked takes its thread with it
// ([runtime.LockOSThread]). The raw call is meant: unix.Setresuid would change
// every thread of the process.
func asUID(uid uint32, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		id := uintptr(uid)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
			done <- fmt.Errorf("cannot become uid %d: %w", uid, errno)
			return
		}
		done <- f()
	}()
	return <-done
}
