//go:build failpoints

package provision

import (
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// failpoint kills this process, as kill -9 would, when CHATD_FAILPOINT names the point. Where that
// is the path of a file, which says "POINT COMMAND", the point takes the file away and runs the
// command by sh, whose $PPID is this process. It exists for test/roottest, which proves that a
// crash at any step, of chatd-root or of a process beside it, leaves a chat that is whole or gone.
func failpoint(name string) {
	at := os.Getenv("CHATD_FAILPOINT")
	if at == name {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	if !strings.HasPrefix(at, "/") {
		return
	}
	text, err := os.ReadFile(at)
	point, command, _ := strings.Cut(string(text), " ")
	if err == nil && point == name && os.Remove(at) == nil {
		_ = exec.Command("sh", "-c", command).Run()
	}
}
