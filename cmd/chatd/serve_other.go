//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/chatd/chatd/chat"
)

// serve cannot: the walls are the Linux kernel's.
func serve(context.Context, Config) error {
	return fmt.Errorf("cannot serve on %s: chatd's walls are made by the Linux kernel: %w", runtime.GOOS, chat.ErrUnsupported)
}
