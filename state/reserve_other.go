//go:build !linux

package state

import (
	"os"

	"github.com/chatd/chatd/chat"
)

func allocate(*os.File, int64) error { return chat.ErrUnsupported }

func freeBytes(string) (free uint64, ok bool) { return 0, false }
