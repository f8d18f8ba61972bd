package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// link is one end of a SOCK_SEQPACKET pair.
type link struct {
	f   *os.File
	raw syscall.RawConn
}

// controlLink takes the end of a control socket.
func controlLink(f *os.File) (*link, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot use the control socket: %w", err)
	}
	return newLink(fd)
}

// newLink takes fd.
func newLink(fd int) (*link, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot use a socket: %w", err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "call")
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot use a socket: %w", err), f.Close())
	}
	return &link{f, raw}, nil
}

// pair are the two ends of a new socket.
func pair() (ours, theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	return p[0], p[1], nil
}

// Pair is a new control socket: one end for [Serve], one for the front.
func Pair() (root, front *os.File, err error) {
	a, b, err := pair()
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(a), "broker"), os.NewFile(uintptr(b), "front"), nil
}

// packets are buffers for one packet with its kind, and one byte more that reveals a packet that is
// too long. An idle reader holds no buffer.
var packets = sync.Pool{New: func() any { return new([packetSize + 1]byte) }}

// send sends one packet, of at most packetSize bytes with its kind.
func (l *link) send(k kind, p []byte) error {
	b := packets.Get().(*[packetSize + 1]byte)
	defer packets.Put(b)
	b[0] = byte(k)
	n := 1 + copy(b[1:], p)
	var sendErr error
	err := l.raw.Write(func(fd uintptr) bool {
		// A closed peer is EPIPE: the Go runtime ignores SIGPIPE for such a descriptor.
		_, sendErr = unix.Write(int(fd), b[:n])
		return sendErr != unix.EAGAIN
	})
	return sent(err, sendErr)
}

// sendFDs passes descriptors; the caller still has to close them.
func (l *link) sendFDs(k kind, p []byte, fds ...int) error {
	var sendErr error
	err := l.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), append([]byte{byte(k)}, p...), unix.UnixRights(fds...), nil,
			unix.MSG_NOSIGNAL)
		return sendErr != unix.EAGAIN
	})
	return sent(err, sendErr)
}

func sent(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot send to the other process: %w", err)
	}
	return nil
}

// sendAll sends p as packets of kind part and a last one of kind last.
func (l *link) sendAll(part, last kind, p []byte) error {
	for len(p) > packetSize-1 {
		if err := l.send(part, p[:packetSize-1]); err != nil {
			return err
		}
		p = p[packetSize-1:]
	}
	return l.send(last, p)
}

// maxOOB has room for a few descriptors of one packet (cmsg(3)); the kernel closes the rest.
const maxOOB = 32

// recv passes the next packet to use, which owns the bytes until it returns. At the end it returns
// [io.EOF]. The kernel closes passed descriptors, for which there is no room.
func (l *link) recv(use func(k kind, p []byte) error) error {
	return l.receive(nil, func(k kind, p []byte, _ []int) error { return use(k, p) })
}

// recvFDs is recv for packets that may pass descriptors, which use must close.
func (l *link) recvFDs(use func(k kind, p []byte, fds []int) error) error {
	return l.receive(make([]byte, maxOOB), use)
}

func (l *link) receive(oob []byte, use func(k kind, p []byte, fds []int) error) error {
	var b *[packetSize + 1]byte
	var n, oobn, flags int
	var recvErr error
	err := l.raw.Read(func(fd uintptr) bool {
		b = packets.Get().(*[packetSize + 1]byte)
		if oob == nil { // read(2) receives no descriptors, and the race detector knows its order
			n, recvErr = unix.Read(int(fd), b[:])
		} else {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), b[:], oob, unix.MSG_CMSG_CLOEXEC)
		}
		if recvErr == unix.EAGAIN {
			packets.Put(b)
			return false
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("cannot hear the other process: %w", err)
	}
	defer packets.Put(b)
	if recvErr != nil {
		return fmt.Errorf("cannot hear the other process: %w", recvErr)
	}
	fds, err := sys.Rights(oob[:oobn])
	switch {
	case err != nil || n > packetSize || oob != nil && flags&unix.MSG_CTRUNC != 0:
		return errors.Join(errors.New("cannot use a packet: it is too large, or brings too much"), err,
			sys.CloseAll(fds))
	case n == 0:
		return errors.Join(io.EOF, sys.CloseAll(fds))
	}
	return use(kind(b[0]), b[1:n], fds)
}

// hangUp ends this side's writing; the link can still receive.
func (l *link) hangUp() error {
	var shutErr error
	err := l.raw.Control(func(fd uintptr) { shutErr = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(err, shutErr)
}

// hearBy sets recv's deadline; the zero time removes it.
func (l *link) hearBy(t time.Time) error { return l.f.SetReadDeadline(t) }

func (l *link) close() error { return l.f.Close() }
