//go:build !linux && !darwin

package state

import (
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
)

// The daemon does not run here; only the types are needed, by the client.

func lockFile(path string) (*os.File, error) {
	return nil, fmt.Errorf("cannot lock %s: no chatd serve on this system: %w", path, chat.ErrUnsupported)
}

func openPrivate(path string, _ int) (*os.File, error) {
	return nil, fmt.Errorf("cannot open %s: no chatd serve on this system: %w", path, chat.ErrUnsupported)
}

func letGo(f *os.File) { _ = f.Close() }

func checkSame(*os.File, string) error { return chat.ErrUnsupported }

func checkDir(string) error { return nil }

func syncDir(string) error { return nil }
