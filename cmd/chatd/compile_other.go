//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/chatd/chatd/chat"
)

// confineCompile cannot: chatd-root, which needs it, is of Linux.
func confineCompile() error {
	return fmt.Errorf("cannot compile for chatd-root on %s: %w", runtime.GOOS, chat.ErrUnsupported)
}
