//go:build !linux

package keeper

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// Run is [chat.ErrUnsupported] outside Linux.
func Run(string, bool, io.Writer) error {
	return fmt.Errorf("cannot keep file rules: not Linux: %w", chat.ErrUnsupported)
}
