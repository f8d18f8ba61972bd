package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Reply returns a socket from local, any address outside, to remote, a socket in the namespace: the
// answers to what a program sent to local. It is a datagram socket, or, where a program has the
// port of local for itself, a raw one: what is written to it begins with a header of UDP (RFC 768),
// of which the checksum is 0. The program's datagrams then come to the socket of
// [Namespace.Listen].
func (n *Namespace) Reply(local, remote netip.AddrPort) (f *os.File, err error) {
	err = n.in(func() error {
		s, err := answering(unix.SOCK_DGRAM, 0, local, remote)
		if errors.Is(err, unix.EADDRINUSE) {
			s, err = answeringRaw(local, remote)
		}
		if err == nil {
			f = os.NewFile(uintptr(s), "reply")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot answer %s from %s: %w", remote, local, err)
	}
	return f, nil
}

// TryReply reports that no raw socket can be made, so that some answers of [Namespace.Reply] are
// lost.
func TryReply() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return fmt.Errorf("answers to programs that send from their server's port are lost: "+
			"cannot make a raw socket, which takes CAP_NET_RAW: %w", err)
	}
	return unix.Close(s)
}

// answering returns a socket of a kind and protocol from local to remote.
func answering(kind, proto int, local, remote netip.AddrPort) (int, error) {
	domain, any := unix.AF_INET, socketOption{unix.SOL_IP, unix.IP_FREEBIND, 1}
	if local.Addr().Is6() { // here a local route is not enough for bind(2)
		domain, any = unix.AF_INET6, socketOption{unix.SOL_IPV6, unix.IPV6_FREEBIND, 1}
	}
	// Several programs talk to one address, and so does the socket of all datagrams.
	several := socketOption{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}
	s, err := opened(domain, kind, proto, local, []socketOption{several, any})
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(s, Sockaddr(remote)); err != nil {
		return -1, errors.Join(err, unix.Close(s))
	}
	return s, nil
}

// answeringRaw returns a raw socket (raw(7)), which takes no port. The kernel makes the header of
// IP, from local to remote whatever is written, and the checksum that IPv6 wants (RFC 3542, section
// 3.1). Copies of what programs send to local would wait in it: the filter takes none.
func answeringRaw(local, remote netip.AddrPort) (int, error) {
	s, err := answering(unix.SOCK_RAW, unix.IPPROTO_UDP, netip.AddrPortFrom(local.Addr(), 0),
		netip.AddrPortFrom(remote.Addr(), 0))
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("the program has the port for itself, and there is no CAP_NET_RAW: %w",
			err)
	}
	if err != nil {
		return -1, err
	}
	none := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &none[0]})
	if err == nil {
		err = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
	}
	if err == nil && local.Addr().Is6() {
		const checksum = 6 // of its place in the header
		err = unix.SetsockoptInt(s, unix.SOL_IPV6, unix.IPV6_CHECKSUM, checksum)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(s))
	}
	return s, nil
}
