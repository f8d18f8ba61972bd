package sockets

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// probeBytes is what a probe leaves in its sockets.
const probeBytes = 32 << 10

// Probe puts bytes into two sockets of a process's network namespace, as uid, and checks that what
// [Watch] reads shows them. It returns what it found.
func Probe(pid int, uid uint32) (string, error) {
	r, err := open(pid)
	if err != nil {
		return "", err
	}
	found, err := r.probe(uid)
	if err = errors.Join(err, r.close()); err == nil {
		_, err = recordLocks()
	}
	return found, err
}

func (r *room) probe(uid uint32) (string, error) {
	before, err := r.look()
	if err != nil {
		return "", err
	}
	var after listing
	err = sys.OnThread(func() error {
		if err := r.join(); err != nil {
			return err
		}
		return withSockets(uid, func() (err error) { after, err = r.look(); return err })
	})
	if err != nil {
		return "", err
	}
	found := after.ByUID[uid].Bytes - before.ByUID[uid].Bytes
	if after.ByUID[uid].Bytes < before.ByUID[uid].Bytes+2*probeBytes {
		return "", fmt.Errorf("cannot see what sockets hold: %d bytes waited in two of uid %d, the kernel reported %d", 2*probeBytes, uid, found)
	}
	return fmt.Sprintf("%d bytes waited in two sockets, and the kernel reported %d with their buffers",
		2*probeBytes, found), nil
}

// withSockets calls look while two sockets that uid made hold probeBytes each.
func withSockets(uid uint32, look func() error) error {
	if _, err := unix.SetfsuidRetUid(int(uid)); err != nil {
		return fmt.Errorf("cannot make sockets as uid %d: %w", uid, err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a pair of sockets: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot make a socket: %w", err)
	}
	defer unix.Close(udp)
	if err := unix.Bind(udp, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("cannot bind a socket: %w", err)
	}
	own, err := unix.Getsockname(udp)
	if err != nil {
		return fmt.Errorf("cannot name a socket: %w", err)
	}
	data := make([]byte, probeBytes)
	// MSG_MORE keeps the datagram: no packet rule sees it.
	if err := errors.Join(unix.Sendto(pair[0], data, 0, nil),
		unix.Sendto(udp, data, unix.MSG_MORE, own)); err != nil {
		return fmt.Errorf("cannot put bytes into a socket: %w", err)
	}
	return look()
}
