//go:build failpoints

package provision

import (
	"os"

	"golang.org/x/sys/unix"
)

// failpoint kills this process, as kill -9 would, when CHATD_FAILPOINT names
// the point. It exists for test/roottest, which proves that a crash at any step
// leaves a chat that is whole or gone.
func failpoint(name string) {
	if os.Getenv("CHATD_FAILPOINT") == name {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}
