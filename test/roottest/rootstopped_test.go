package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// TestStoppedRoot: while chatd-root is stopped, sessions and background runs go on, and callers wait.
// When it goes on, the front is the same and what was asked is done. systemd ends one that stays
// stopped: it sends no sign of life (TestWatchdog).
func TestStoppedRoot(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
	must(t, err)
	r, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{Command: "while sleep 0.1; do echo x >>~/grows; done"})
	must(t, err)
	front, root := frontOf(t, d.cmd.Process.Pid), d.cmd.Process.Pid
	must(t, unix.Kill(root, unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(root, unix.SIGCONT) })
	size := func() int64 {
		fi, err := os.Stat(filepath.Join(c.Home, "grows"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	was := size()
	until(t, "the run goes on", func() bool { return size() > was+4 })
	asked := make(chan string, 1)
	go func() {
		got, err := d.Client.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo late"})
		asked <- fmt.Sprintln(strings.TrimSpace(got.Stdout), err)
	}()
	was = size()
	until(t, "the run goes on", func() bool { return size() > was+4 })
	select {
	case answer := <-asked:
		t.Errorf("a stopped chatd-root answers: %s", answer)
	default:
	}
	must(t, unix.Kill(root, unix.SIGCONT))
	if answer := <-asked; answer != "late <nil>\n" {
		t.Errorf("what was asked meanwhile: %s", answer)
	}
	if now := frontOf(t, root); now != front {
		t.Errorf("the front is process %d, was %d", now, front)
	}
	must(t, d.EndRun(t.Context(), c.ID, r.ID))
	must(t, d.Reap(t.Context(), c.ID))
}
