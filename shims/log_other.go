//go:build !linux

package shims

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

func runLog(_ []string, errs io.Writer) int {
	return fail(errs, fmt.Errorf("cannot keep a log: this is not Linux: %w", chat.ErrUnsupported))
}
