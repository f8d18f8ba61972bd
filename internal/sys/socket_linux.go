package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// SocketOf makes a socket that belongs to uid and gid (socket(2), with SOCK_NONBLOCK and
// SOCK_CLOEXEC) in the caller's network namespace. The owner match of iptables compares the fsuid
// and fsgid that a thread had when it made the socket's file (xt_owner, f_cred), so the calling
// thread takes them for this one call (setfsuid(2), setfsgid(2)). They change nothing else that the
// thread may do, but that a fsuid other than 0 has no CAP_DAC_OVERRIDE and its like meanwhile
// (capabilities(7)).
//
// The calls are raw ones because an fsuid belongs to one thread. A thread that could not take its
// own ids back runs no other goroutine: it ends with the one that is locked to it
// ([runtime.LockOSThread]). The main thread is passed over, as in [AsUID]. Each connection of a chat
// asks for a socket: a thread of its own ([OnThread]) would take four times as long.
func SocketOf(uid, gid uint32, domain, typ int) (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			fd, err = SocketOf(uid, gid, domain, typ)
			runtime.UnlockOSThread()
			return
		}
		var restored bool
		if fd, restored, err = socketOf(uid, gid, domain, typ); restored {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return fd, err
}

// socketOf is SocketOf on the calling thread; restored is whether the thread has its own ids again.
func socketOf(uid, gid uint32, domain, typ int) (fd int, restored bool, err error) {
	ownUID, ownGID := fsID(unix.SYS_SETFSUID, keepID), fsID(unix.SYS_SETFSGID, keepID)
	fd, err = -1, setFSIDs(uid, gid)
	if err == nil {
		fd, err = unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			err = fmt.Errorf("cannot make a socket of uid %d and gid %d: %w", uid, gid, err)
		}
	}
	back := setFSIDs(ownUID, ownGID)
	if err = errors.Join(err, back); err != nil && fd >= 0 {
		err = errors.Join(err, unix.Close(fd))
		fd = -1
	}
	return fd, back == nil, err
}

// keepID is not an id: with it the calls change nothing and return the present one (setfsuid(2)).
const keepID = ^uint32(0)

// setFSIDs sets the calling thread's fsgid and fsuid, and then looks: the calls report no error.
func setFSIDs(uid, gid uint32) error {
	fsID(unix.SYS_SETFSGID, gid)
	fsID(unix.SYS_SETFSUID, uid)
	u, g := fsID(unix.SYS_SETFSUID, keepID), fsID(unix.SYS_SETFSGID, keepID)
	if u != uid || g != gid || uid == keepID || gid == keepID {
		return fmt.Errorf("cannot set fsuid %d and fsgid %d: the kernel says %d and %d: %w",
			uid, gid, u, g, unix.EPERM)
	}
	return nil
}

// fsID calls setfsuid(2) or setfsgid(2), which return the id before the call.
func fsID(call uintptr, id uint32) uint32 {
	before, _, _ := unix.RawSyscall(call, uintptr(id), 0, 0)
	return uint32(before)
}

// Listener is the process behind a connection that called listen(2) last (unix(7), SO_PEERCRED), or
// 0. No other goroutine may use conn meanwhile.
func Listener(conn *os.File) int {
	cred, err := unix.GetsockoptUcred(int(conn.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
