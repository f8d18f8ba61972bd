package roottest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketActs take kernel memory by way of sockets and locks.
var socketActs = map[string]act{
	"take": take,
	"hold": hold,
}

// takers each take what one call after the other gives, until there is no more.
var takers = map[string]func(){
	"waiting connections":  takeConnections,
	"unfinished datagrams": func() { takeDatagrams(false) },
	"hidden datagrams":     func() { takeDatagrams(true) },
	"queued datagrams":     takeQueues,
	"copies of datagrams":  takeCopies,
	"pairs":                takePairs,
	"locks":                takeLocks,
	"netlink":              takeNetlink,
}

// take starts a[1] processes that take a[0], and stays with them.
func take(a []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for range number(a[1]) {
		cmd := exec.Command(self, "hold", a[0])
		cmd.Args[0] = attackName
		if err := cmd.Start(); err != nil {
			return "", err // no more tasks: those that are there go on
		}
	}
	unix.Pause()
	return "", nil
}

func hold(a []string) (string, error) {
	takers[a[0]]()
	unix.Pause()
	return "", nil
}

// bytes64K is as much as a datagram holds.
var bytes64K = make([]byte, 65_000)

var anyPort = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}

func newSocket(kind int) (int, bool) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, err == nil
}

// takeConnections connects to listeners that accept nothing, sends, and closes: what was
// sent stays with the listener.
func takeConnections() {
	for {
		l, ok := newSocket(unix.SOCK_STREAM)
		if !ok || unix.Bind(l, anyPort) != nil || unix.Listen(l, 4096) != nil {
			return
		}
		name, _ := unix.Getsockname(l)
		for range 4000 {
			c, ok := newSocket(unix.SOCK_STREAM)
			if !ok {
				return
			}
			_ = unix.Connect(c, name) // in progress, and done on the same host
			for {
				if _, err := unix.Write(c, bytes64K); err != nil {
					break
				}
			}
			unix.Close(c)
		}
	}
}

// takeDatagrams begins datagrams and does not finish them. Hidden, it unbinds each socket
// again, and then no list of the kernel shows it.
func takeDatagrams(hidden bool) {
	sink, _ := newSocket(unix.SOCK_DGRAM)
	_ = unix.Bind(sink, anyPort)
	name, _ := unix.Getsockname(sink)
	for {
		fd, ok := newSocket(unix.SOCK_DGRAM)
		if !ok {
			return
		}
		_ = unix.Sendto(fd, bytes64K[:60_000], unix.MSG_MORE, name)
		if hidden {
			disconnect(fd)
		}
	}
}

// disconnect is connect(2) with AF_UNSPEC.
func disconnect(fd int) {
	var unspecified [16]byte
	_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), uintptr(len(unspecified)))
}

// takeQueues sends datagrams that are never read.
func takeQueues() {
	sendAll(func(fd int, sink unix.Sockaddr) {
		if sink, err := unix.Getsockname(fd); err == nil {
			_ = unix.Sendto(fd, bytes64K[:30_000], 0, sink)
		}
	})
}

// takeCopies asks for a time stamp with each datagram, by a control message, where no
// option has to be set: a copy of each waits on the error queue.
func takeCopies() {
	stamp := controlMessage(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_TX_SOFTWARE)
	sendAll(func(fd int, sink unix.Sockaddr) { _ = unix.Sendmsg(fd, bytes64K[:60_000], stamp, sink, 0) })
}

// sendAll sends ten times by as many sockets as there are to be had, and then again by all:
// on a busy host datagrams are lost.
func sendAll(send func(fd int, sink unix.Sockaddr)) {
	first, _ := newSocket(unix.SOCK_DGRAM)
	_ = unix.Bind(first, anyPort)
	sink, _ := unix.Getsockname(first)
	var all []int
	for {
		fd, ok := newSocket(unix.SOCK_DGRAM)
		if !ok || unix.Bind(fd, anyPort) != nil {
			break
		}
		all = append(all, fd)
		for range 10 {
			send(fd, sink)
		}
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		for _, fd := range all {
			send(fd, sink)
		}
	}
}

// takePairs fills pairs of unix sockets.
func takePairs() {
	for {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return
		}
		for {
			if _, err := unix.Write(pair[0], bytes64K); err != nil {
				break
			}
		}
	}
}

// takeLocks locks single bytes of files in its directory.
func takeLocks() {
	for n := 0; ; n++ {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("locks-%d-%d", os.Getpid(), n))
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return
		}
		for at := range int64(1000) {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 2 * at, Len: 1}
			if unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock) != nil {
				return
			}
		}
	}
}

// takeNetlink asks for all interfaces, again and again, and reads nothing.
func takeNetlink() {
	ask := make([]byte, 32)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	for {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		for range 500 {
			if unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
				break
			}
		}
	}
}

// controlMessage is one of sendmsg(2) with a value of 32 bits.
func controlMessage(level, kind int, value uint32) []byte {
	b := make([]byte, unix.CmsgSpace(4))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(4)))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(kind))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], value)
	return b
}
