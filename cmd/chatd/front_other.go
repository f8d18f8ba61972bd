//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chatd/chatd/chat"
)

// runFront cannot: chatd-root is of Linux.
func runFront(context.Context) error {
	return fmt.Errorf("cannot serve on %s: %w", runtime.GOOS, chat.ErrUnsupported)
}
