//go:build !linux

package listen

import (
	"fmt"
	"net"

	"github.com/chatd/chatd/chat"
)

// Unix is for Linux only: the server's roles need its peer credentials.
func Unix(path string, _ ...uint32) (net.Listener, error) {
	return nil, fmt.Errorf("cannot listen on %s on this platform: %w", path, chat.ErrUnsupported)
}
