package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Numbers of linux/sock_diag.h, inet_diag.h, unix_diag.h and netlink_diag.h.
const (
	sockDiagByFamily = 20
	inetSKMemInfo    = 7
	unixMemInfo      = 5
	unixUID          = 7
	unixShow         = 0x20 | 0x40 // memory, uid
	netlinkMemInfo   = 0
	netlinkShow      = 0x1
	netlinkAll       = 0xff

	tcpListen  = 10
	everyState = 0xffffffff
	nlHeader   = unix.SizeofNlMsghdr
)

// Fields of SK_MEMINFO (linux/sock_diag.h).
const (
	memRmem    = 0
	memWmem    = 2
	memWqueued = 5
	memOptmem  = 6
	memBacklog = 7
	memDrops   = 8
)

// kind is one list of sockets that the kernel keeps.
type kind struct {
	family, protocol byte
	// size is that of the answer's fixed part, memory the attribute with SK_MEMINFO.
	size   int
	memory uint16
}

var kinds = []kind{
	{unix.AF_INET, unix.IPPROTO_TCP, 72, inetSKMemInfo},
	{unix.AF_INET6, unix.IPPROTO_TCP, 72, inetSKMemInfo},
	{unix.AF_INET, unix.IPPROTO_UDP, 72, inetSKMemInfo},
	{unix.AF_INET6, unix.IPPROTO_UDP, 72, inetSKMemInfo},
	{unix.AF_UNIX, 0, 16, unixMemInfo},
	{unix.AF_NETLINK, netlinkAll, 28, netlinkMemInfo},
}

// request is one dump of k: struct inet_diag_req_v2, unix_diag_req or netlink_diag_req.
func (k kind) request() []byte {
	body := make([]byte, 56)
	body[0], body[1] = k.family, k.protocol
	switch k.family {
	case unix.AF_UNIX:
		body = body[:24]
		binary.NativeEndian.PutUint32(body[4:], everyState)
		binary.NativeEndian.PutUint32(body[12:], unixShow)
	case unix.AF_NETLINK:
		body = body[:20]
		binary.NativeEndian.PutUint32(body[8:], netlinkShow)
	default:
		body[2] = 1 << (inetSKMemInfo - 1)
		binary.NativeEndian.PutUint32(body[4:], everyState)
	}
	msg := make([]byte, nlHeader, nlHeader+len(body))
	binary.NativeEndian.PutUint32(msg, uint32(nlHeader+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return append(msg, body...)
}

// dump asks for every socket of one kind and gives each to see.
func dump(fd int, k kind, buf []byte, see func(entry)) error {
	if err := unix.Sendto(fd, k.request(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("cannot ask for sockets of family %d: %w", k.family, err)
	}
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read the sockets of family %d: %w", k.family, err)
		}
		done, err := k.messages(buf[:n], see)
		if done || err != nil {
			return err
		}
	}
}

// messages reads one datagram of netlink(7).
func (k kind) messages(b []byte, see func(entry)) (done bool, err error) {
	all, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return false, fmt.Errorf("cannot read the sockets of family %d: %w", k.family, err)
	}
	for _, m := range all {
		switch m.Header.Type {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(m.Data) < 4 {
				return false, fmt.Errorf("cannot read the sockets of family %d: an error of %d bytes",
					k.family, len(m.Data))
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			return false, fmt.Errorf("cannot list the sockets of family %d: %w", k.family, errno)
		case sockDiagByFamily:
			if len(m.Data) >= k.size {
				see(k.entry(m.Data))
			}
		}
	}
	return false, nil
}

// entry is one socket.
type entry struct {
	uid    uint32
	inode  uint32
	listen bool
	port   uint16
	// memory is the size of its waiting data, in bytes; counted is false for an entry that is no
	// whole socket, as a connection in TIME_WAIT.
	memory  uint64
	counted bool
}

func (k kind) entry(b []byte) entry {
	var e entry
	switch k.family {
	case unix.AF_UNIX:
		e.inode = binary.NativeEndian.Uint32(b[4:])
	case unix.AF_NETLINK:
		e.inode = binary.NativeEndian.Uint32(b[16:])
	default:
		e.listen = k.protocol == unix.IPPROTO_TCP && b[1] == tcpListen
		e.port = binary.BigEndian.Uint16(b[4:])
		e.uid = binary.NativeEndian.Uint32(b[64:])
		e.inode = binary.NativeEndian.Uint32(b[68:])
	}
	for b = b[k.size:]; len(b) >= 4; {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < 4 || size > len(b) {
			break
		}
		switch value := b[4:size]; {
		case kind == k.memory && len(value) >= 4*(memBacklog+1):
			e.memory, e.counted = memory(value), true
		case k.family == unix.AF_UNIX && kind == unixUID && len(value) >= 4:
			e.uid = binary.NativeEndian.Uint32(value)
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return e
}

// memory sums the received and the sent data that waits, the options and the backlog. One of the
// two send figures has the data that TCP keeps, the other a datagram's.
func memory(b []byte) uint64 {
	at := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[4*i:])) }
	return at(memRmem) + max(at(memWmem), at(memWqueued)) + at(memOptmem) + at(memBacklog)
}
