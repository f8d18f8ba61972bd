package egress

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connect connects a non-blocking socket (connect(2)). Package net connects only sockets that it
// has made.
func connect(ctx context.Context, f *os.File, to netip.AddrPort) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var connectErr error
	err = raw.Control(func(fd uintptr) { connectErr = unix.Connect(int(fd), sockaddr(to)) })
	if err = errors.Join(err, connectErr); !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return connected(ctx, f)
}

// connected waits until a connecting socket is connected. A wake-up without a result is one of
// before connect(2), and the wait goes on.
func connected(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	past := func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) }
	defer context.AfterFunc(ctx, past)()
	var result error
	err = raw.Write(func(fd uintptr) bool {
		var done bool
		done, result = connectResult(int(fd))
		return done
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, result)
}

func connectResult(fd int) (done bool, err error) {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return true, err
	case n != 0:
		return true, unix.Errno(n)
	}
	_, err = unix.Getpeername(fd)
	return !errors.Is(err, unix.ENOTCONN), err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
