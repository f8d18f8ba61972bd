package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// backlog is how many connections wait for chatd-egress, which may be starting.
const backlog = 512

// Listen makes the two sockets to which the redirect leads: a listener for TCP, and a socket for
// datagrams that tells each datagram's destination (ip(7), IP_RECVORIGDSTADDR) and may answer from
// it (IP_PKTINFO). Both are of both families where the kernel has IPv6. While another process
// listens there, the error is EADDRINUSE.
func (n *Namespace) Listen() (tcp, udp *os.File, err error) {
	err = n.in(func() (err error) {
		if tcp, err = bound(unix.SOCK_STREAM); err != nil {
			return err
		}
		udp, err = bound(unix.SOCK_DGRAM)
		return err
	})
	if err != nil {
		if tcp != nil {
			err = errors.Join(err, tcp.Close())
		}
		return nil, nil, fmt.Errorf("cannot listen in the network of a session: %w", err)
	}
	return tcp, udp, nil
}

// bound returns a socket on [Port] of all addresses, of IPv4 alone where the kernel has no IPv6.
func bound(kind int) (*os.File, error) {
	s, err := opened(unix.AF_INET6, kind, 0, netip.AddrPortFrom(netip.IPv6Unspecified(), Port),
		socketOptions(kind, true))
	if errors.Is(err, unix.EAFNOSUPPORT) {
		s, err = opened(unix.AF_INET, kind, 0, netip.AddrPortFrom(netip.IPv4Unspecified(), Port),
			socketOptions(kind, false))
	}
	if err != nil {
		return nil, err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(s, backlog); err != nil {
			return nil, errors.Join(err, unix.Close(s))
		}
	}
	return os.NewFile(uintptr(s), "outside"), nil
}

// opened returns a socket that is bound to an address after the options were set.
func opened(domain, kind, proto int, at netip.AddrPort, options []socketOption) (int, error) {
	s, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, err
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(s, o.level, o.name, o.value); err != nil {
			return -1, errors.Join(fmt.Errorf("socket option %d of level %d: %w",
				o.name, o.level, err), unix.Close(s))
		}
	}
	if err := unix.Bind(s, Sockaddr(at)); err != nil {
		return -1, errors.Join(err, unix.Close(s))
	}
	return s, nil
}

type socketOption struct{ level, name, value int }

// socketOptions are those of a socket to which the redirect leads: it takes what is sent to other
// addresses than its own (ip(7), IP_TRANSPARENT). SO_REUSEADDR (socket(7)) lets the listener have
// the port of an earlier one whose connections are not gone, but not of one that listens, and lets
// a connected socket of [Namespace.Reply] stand beside the datagram socket. No program of a chat
// may bind [Port].
func socketOptions(kind int, v6 bool) []socketOption {
	all := []socketOption{{unix.SOL_IP, unix.IP_TRANSPARENT, 1},
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
	if v6 {
		all = append(all, socketOption{unix.SOL_IPV6, unix.IPV6_V6ONLY, 0},
			socketOption{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1})
	}
	if kind != unix.SOCK_DGRAM {
		return all
	}
	all = append(all, socketOption{unix.SOL_IP, unix.IP_RECVORIGDSTADDR, 1},
		socketOption{unix.SOL_IP, unix.IP_PKTINFO, 1})
	if v6 {
		all = append(all, socketOption{unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, 1},
			socketOption{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1})
	}
	return all
}

// Sockaddr is an address as bind(2) and connect(2) take it.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
