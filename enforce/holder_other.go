//go:build !linux

package enforce

import (
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Run is [chat.ErrUnsupported] outside Linux.
func Run(Options) error {
	return fmt.Errorf("cannot keep file rules: not Linux: %w", chat.ErrUnsupported)
}
