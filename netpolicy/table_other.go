//go:build !linux

package netpolicy

import (
	"context"
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
)

// Table exists on Linux only; here [Open] always fails.
type Table struct{}

var errLinux = fmt.Errorf("cannot use the network policy here: it takes Linux: %w", chat.ErrUnsupported)

// Open fails with [chat.ErrUnsupported].
func Open(Options) (*Table, error) { return nil, errLinux }

// Claim fails with [chat.ErrUnsupported].
func Claim() (*os.File, error) { return nil, errLinux }

// Apply fails with [chat.ErrUnsupported].
func (*Table) Apply(context.Context, []Policy) error { return errLinux }

// Raise fails with [chat.ErrUnsupported].
func (*Table) Raise(context.Context) error { return errLinux }

// Drift fails with [chat.ErrUnsupported].
func (*Table) Drift(context.Context) ([]string, error) { return nil, errLinux }

// Watch fails with [chat.ErrUnsupported].
func Watch(context.Context, func(), func(context.Context)) error { return errLinux }

// Mend fails with [chat.ErrUnsupported].
func (*Table) Mend(context.Context) ([]string, error) { return nil, errLinux }

// Remove fails with [chat.ErrUnsupported].
func (*Table) Remove(context.Context) error { return errLinux }

// Probe tries nothing.
func (*Table) Probe(context.Context) []chat.Layer { return nil }
