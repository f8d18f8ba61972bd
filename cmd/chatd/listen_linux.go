package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
)

// listen takes the socket that systemd made for chatd.socket, and makes one where
// there is none. The variables are taken away, so that no program chatd starts
// believes that they are meant for it.
func listen(path string, gids ...uint32) (net.Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return api.Listen(path, gids...)
	}
	if len(files) == 1 {
		return api.Inherit(files[0], path, gids...)
	}
	err := fmt.Errorf("cannot use the sockets that were handed over: got %d, want only the one of ListenStream=%s: %w", len(files), path, chat.ErrInvalid)
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return nil, err
}
