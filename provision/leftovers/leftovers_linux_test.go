package leftovers

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRemoveKeys leaves a user keyring and a persistent one, each with a key in it, as a login as
// the chat would, and takes them away.
func TestRemoveKeys(t *testing.T) {
	must.Root(t, "it acts as a uid")
	uid := 2000000000 + uint32(os.Getpid())
	err := sys.AsUID(uid, func() error {
		_, err := unix.AddKey("user", "chatd-test", []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
		if err != nil {
			return err
		}
		const own, here = -1, unix.KEY_SPEC_PROCESS_KEYRING
		id, err := unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, own, here, 0, 0)
		if err == unix.EOPNOTSUPP {
			return nil // the kernel is without persistent keyrings
		}
		if err == nil {
			_, err = unix.AddKey("user", "chatd-test", []byte("secret"), id)
		}
		return err
	})
	must.Do(t, err)
	if has, err := hasKeys(uid); err != nil || !has {
		t.Fatalf("the key is not seen: %v, %v", has, err)
	}
	expect.NoError(t, removeKeys(t.Context(), uid))
	if has, err := hasKeys(uid); err != nil || has {
		t.Errorf("keys are left: %v, %v", has, err)
	}
}

// TestKillPidThatEnded: for the pid of a process that has just ended, the kernel may return the
// same error as for a thread's id; reap goes on.
func TestKillPidThatEnded(t *testing.T) {
	runtime.LockOSThread()
	tid := unix.Gettid()
	if tid == os.Getpid() { // of two threads one does not lead the process
		tids, over := make(chan int), make(chan struct{})
		defer close(over)
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			<-over
		}()
		tid = <-tids
	}
	if _, err := unix.PidfdOpen(tid, 0); err == nil {
		t.Fatal("the kernel opens a thread: this test would show nothing")
	}
	expect.NoError(t, killPid(tid, uint32(os.Getuid())+1))
}
