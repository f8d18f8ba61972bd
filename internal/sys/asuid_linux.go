package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AsUID runs f on a thread that has become uid for good (real, effective and saved, the gid of the
// same number, no other group), and waits for it; see [OnThread]. The kernel checks f's system
// calls as that user's, and sockets that f makes or accepts belong to uid. The owner match asks who
// made the file (xt_owner, by f_cred->fsuid).
//
// The calls are raw ones because those of package unix change every thread of the process.
func AsUID(uid uint32, f func() error) error {
	return OnThread(func() error {
		if err := becomeThread(uid); err != nil {
			return err
		}
		return f()
	})
}

// becomeThread gives up groups, gid and uid, in that order, and then looks.
func becomeThread(uid uint32) error {
	id := uintptr(uid)
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return fmt.Errorf("cannot become uid %d: %w", uid, errno)
		}
	}
	if got, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0); got != id {
		return fmt.Errorf("cannot become uid %d: the kernel says %d", uid, got)
	}
	return nil
}
