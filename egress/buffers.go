package egress

import (
	"errors"
	"fmt"
	"net"
)

const (
	// wideServers is how many connections of a chat to servers have buffers that the kernel makes
	// as large as a stream needs: at most tcp_rmem and tcp_wmem (tcp(7)), which is 32 MiB and 4 MiB
	// in Linux 6.18.
	wideServers = 8
	// narrowBuffer is what each buffer of a further one holds, in bytes. net.core.rmem_max and
	// wmem_max (socket(7)) may make it less.
	narrowBuffer = 256 << 10
)

// narrow bounds the buffers of a chat's connection to a server, if the chat has many: what a server
// sends to a chat that does not read waits there, and the tcp_mem of the host is for all.
func (n *network) narrow(server *net.TCPConn) error {
	n.mu.Lock()
	many := n.servers > wideServers
	n.mu.Unlock()
	if !many {
		return nil
	}
	err := errors.Join(server.SetReadBuffer(narrowBuffer), server.SetWriteBuffer(narrowBuffer))
	if err != nil {
		return fmt.Errorf("cannot bound the buffers of a connection: %w", err)
	}
	return nil
}
