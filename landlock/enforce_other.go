//go:build !linux

package landlock

import (
	"fmt"

	"github.com/chatd/chatd/chat"
)

// ABI is 0: there is no Landlock outside Linux.
func ABI() int { return 0 }

// Enforce is [chat.ErrUnsupported] outside Linux.
func Enforce(Rules, int, bool) (Result, error) {
	return Result{}, fmt.Errorf("cannot enforce Landlock: not Linux: %w", chat.ErrUnsupported)
}
