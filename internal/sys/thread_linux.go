package sys

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs act on a thread of its own, and waits for it. The thread ends with act, whatever
// act makes of it (setns(2), setresuid(2)): a goroutine that ends locked takes its thread with it
// ([runtime.LockOSThread]). The main thread is passed over: it cannot end, and it is what
// /proc/PID shows of the whole daemon.
func OnThread(act func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- OnThread(act)
			runtime.UnlockOSThread()
			return
		}
		done <- act()
	}()
	return <-done
}
