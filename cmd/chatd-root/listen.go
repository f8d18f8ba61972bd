package main

import (
	"net"
	"os"

	"github.com/chatd/chatd/provision/listen"
)

// listenOn takes over the socket that systemd made for chatd.socket and chatd serve was handed
// as descriptor fd, and makes one where that is 0.
func listenOn(fd int, path string, gids ...uint32) (net.Listener, error) {
	if fd == 0 {
		return listen.Unix(path, gids...)
	}
	return listen.Inherit(os.NewFile(uintptr(fd), "LISTEN_FD"), path, gids...)
}
