package egress

import (
	"encoding/binary"
	"net"
)

// headerUDP is the length of a header of UDP (RFC 768).
const headerUDP = 8

// rawReply answers the datagrams of a program that has the port of their destination for itself,
// such as one of NTP. So there is no socket with that port, and what the program sends comes to the
// socket of all datagrams. A raw socket writes the answers (raw(7)), of which chatd-root has chosen
// the addresses.
type rawReply struct {
	*net.IPConn
	from, to uint16
}

// Write sends a datagram. Its checksum is 0, which over IPv4 says that there is none; over IPv6 the
// kernel fills it in.
func (r *rawReply) Write(b []byte) (int, error) {
	d := make([]byte, headerUDP, headerUDP+len(b))
	binary.BigEndian.PutUint16(d[0:], r.from)
	binary.BigEndian.PutUint16(d[2:], r.to)
	binary.BigEndian.PutUint16(d[4:], uint16(headerUDP+len(b)))
	n, err := r.IPConn.Write(append(d, b...))
	return max(0, n-headerUDP), err
}
