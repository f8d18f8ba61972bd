//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config/configfile"
)

// becomeRoot cannot: the walls are the Linux kernel's.
func becomeRoot(configfile.Flags) error {
	return fmt.Errorf("cannot serve on %s: chatd's walls are made by the Linux kernel: %w", runtime.GOOS,
		chat.ErrUnsupported)
}
