//go:build !linux

package shims

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

// Confine is [chat.ErrUnsupported] outside Linux.
func Confine(plan.Plan) error {
	return fmt.Errorf("cannot confine: not Linux: %w", chat.ErrUnsupported)
}

// Probe finds no wall outside Linux.
func Probe(plan.ProbeSpec) []chat.Layer { return nil }

func exitCode(error) int { return 125 }

func runConfine([]string, io.Writer) int { return 125 }

func runEnter([]string, io.Writer) int { return 125 }

func fileTool([]string) int { return 125 }
