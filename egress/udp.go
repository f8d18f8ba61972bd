package egress

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	// maxDatagram is more than any datagram has (udp(7)).
	maxDatagram = 64 << 10
	// maxQuestion is more than a question has (RFC 1035, section 4.2.1).
	maxQuestion = 512
)

// receive reads the chat's datagrams until its socket is closed.
func (n *network) receive() {
	for {
		_, err := readable(n.udp)
		if err == nil {
			err = n.receiveOne()
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			n.s.log.Warn("cannot receive a datagram of a chat", "chat", n.id, "error", err)
			pause(n.ctx)
		}
	}
}

// receiveOne reads one datagram, with the address that it was sent to.
func (n *network) receiveOne() error {
	b := n.s.buffer()
	defer n.s.buffers.Put(b)
	var oob [256]byte
	size, oobn, _, src, err := n.udp.ReadMsgUDPAddrPort(b[:], oob[:])
	if err != nil {
		return err
	}
	if dst, ok := originalDst(oob[:oobn]); ok {
		n.datagram(plain(src), dst, b[:size])
	}
	return nil
}

func (s *server) buffer() *[maxDatagram]byte {
	if b, ok := s.buffers.Get().(*[maxDatagram]byte); ok {
		return b
	}
	return new([maxDatagram]byte)
}

// datagram answers a question for a name, or passes a datagram on. On loopback there are only
// questions. It keeps nothing of b.
func (n *network) datagram(src, dst netip.AddrPort, b []byte) {
	switch {
	case asksNames(n.allowed(), true, dst):
		n.question(src, dst, b)
	case dst.Addr().IsLoopback():
	default:
		n.pass(flowKey{src, dst}, b)
	}
}

// question answers a question for a name, from the address that was asked. Where the chat has too
// many of them the question is lost, as datagrams are.
func (n *network) question(src, dst netip.AddrPort, b []byte) {
	if len(b) > maxQuestion || !n.asks.Take() {
		return
	}
	if ok, _ := n.s.waiting.take(1, &n.waiting, &n.owner.waiting, 0); !ok {
		return
	}
	query := append([]byte(nil), b...)
	n.all.Go(func() {
		defer n.s.waiting.give(1, &n.waiting, &n.owner.waiting)
		answer := n.resolver().Answer(n.ctx, query)
		if len(answer) == 0 {
			return
		}
		// A chat whose socket is gone wants no answer.
		_, _, _ = n.udp.WriteMsgUDPAddrPort(answer, packetInfo(dst.Addr()), src)
	})
}

// originalDst is where a datagram was sent to (IP_RECVORIGDSTADDR of ip(7), and the same of IPv6).
// A dual-stack socket gets the message of either.
func originalDst(oob []byte) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range messages {
		var addr netip.Addr
		switch d := m.Data; {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR &&
			len(d) >= unix.SizeofSockaddrInet4:
			addr = netip.AddrFrom4([4]byte(d[4:8]))
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_ORIGDSTADDR &&
			len(d) >= unix.SizeofSockaddrInet6:
			addr = netip.AddrFrom16([16]byte(d[8:24]))
		default:
			continue
		}
		return plain(netip.AddrPortFrom(addr, binary.BigEndian.Uint16(m.Data[2:4]))), true
	}
	return netip.AddrPort{}, false
}

// packetInfo is the control message that has a datagram sent from an address (IP_PKTINFO of ip(7),
// RFC 3542, section 6.2).
func packetInfo(from netip.Addr) []byte {
	if from.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: from.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: from.As16()})
}
