package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// burst is how long bytes go without a look at what else is to be done. splice(2) has a pipe for as
// long, which is given back before the wait for the next byte.
const burst = time.Second

// readable waits until c has bytes, a datagram, its end or an error, and holds no buffer
// meanwhile. n is 0 at the end of a stream. The error is that of the socket, which the kernel
// reports once.
func readable(c syscall.Conn) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var b [1]byte
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, peekErr = unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(peekErr, unix.EAGAIN) && !errors.Is(peekErr, unix.EINTR)
	})
	return n, errors.Join(err, peekErr)
}

// relay passes bytes both ways, until both peers have ended their side or one of them fails.
func (c connection) relay(server *net.TCPConn) error {
	in := make(chan error, 1)
	go func() { in <- c.pump(c.client, server, c.received, nil) }()
	return errors.Join(c.pump(server, c.client, c.sent, nil), <-in)
}

// pump passes bytes from src to dst until src ends, and ends dst then (shutdown(2)). An error ends
// the connection. Before the first byte it asks first; if that is false, pump leaves the bytes.
func (c connection) pump(dst, src *net.TCPConn, count func(int64), first func() bool) error {
	err := c.passAll(dst, src, count, first)
	if errors.Is(err, errTaken) {
		return nil
	}
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		c.fail(err)
	}
	return err
}

// errTaken says that another reads from a connection from now on.
var errTaken = errors.New("taken")

func (c connection) passAll(dst, src *net.TCPConn, count func(int64), first func() bool) error {
	for {
		n, err := readable(src)
		if first != nil && !first() {
			return errTaken
		}
		first = nil
		if n == 0 || err != nil {
			return err
		}
		if err := src.SetReadDeadline(time.Now().Add(burst)); err != nil {
			return err
		}
		passed, err := dst.ReadFrom(src) // splice(2)
		count(passed)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := src.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// turn is who reads a server's bytes: the relay, once there are some, or another.
type turn struct{ taken atomic.Bool }

// take reports whether the caller is the first.
func (t *turn) take() bool { return t.taken.CompareAndSwap(false, true) }

// write writes all of b.
func (c connection) write(server io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := server.Write(b)
	c.sent(int64(n))
	return err
}
