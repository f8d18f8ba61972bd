//go:build !linux

package shims

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

func runPTY(_ []string, errs io.Writer) int {
	return fail(errs, fmt.Errorf("cannot make a terminal: this is not Linux: %w", chat.ErrUnsupported))
}
