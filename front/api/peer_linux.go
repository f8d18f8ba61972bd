package api

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// peerOf reads the peer's credentials from the kernel: SO_PEERCRED (unix(7)) for uid and gid,
// SO_PEERGROUPS (since Linux 4.13, socket(7)) for the supplementary groups, as they were at
// connect(2).
func peerOf(c net.Conn) (peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, fmt.Errorf("cannot tell the peer of a %T: %w", c, chat.ErrDenied)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return peer{}, fmt.Errorf("cannot tell the peer: %w", err)
	}
	var p peer
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			credErr = err
			return
		}
		groups, err := peerGroups(fd)
		p, credErr = peer{uid: cred.Uid, gids: append(groups, cred.Gid)}, err
	})
	if err := errors.Join(err, credErr); err != nil {
		return peer{}, fmt.Errorf("cannot tell the peer: %w", err)
	}
	return p, nil
}

// peerGroups reads SO_PEERGROUPS; the kernel answers ERANGE with the size it
// needs when the buffer is too small.
func peerGroups(fd uintptr) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno != unix.ERANGE || int(size/4) <= len(groups):
			return nil, fmt.Errorf("cannot read SO_PEERGROUPS: %w", errno)
		}
		groups = make([]uint32, size/4)
	}
}
