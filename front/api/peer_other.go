//go:build !linux

package api

import (
	"fmt"
	"net"

	"github.com/chatd/chatd/chat"
)

// peerOf cannot tell: the server is for Linux, the client is for every platform.
func peerOf(net.Conn) (peer, error) {
	return peer{}, fmt.Errorf("cannot tell the peer of a connection on this platform: %w",
		chat.ErrUnsupported)
}
