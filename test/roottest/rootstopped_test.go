package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStoppedRoot: while chatd-root is stopped, sessions and background runs go on, and callers wait.
// When it goes on, the front is the same and what was asked is done. systemd ends one that stays
// stopped: it sends no sign of life (TestWatchdog).
func TestStoppedRoot(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
	must.Do(t, err)
	r, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{Command: "while sleep 0.1; do echo x >>~/grows; done"})
	must.Do(t, err)
	front, root := frontOf(t, d.cmd.Process.Pid), d.cmd.Process.Pid
	must.Do(t, unix.Kill(root, unix.SIGSTOP))
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
	must.Do(t, unix.Kill(root, unix.SIGCONT))
	expect.Equal(t, <-asked, "late <nil>\n", "what was asked meanwhile")
	if now := frontOf(t, root); now != front {
		t.Errorf("the front is process %d, was %d", now, front)
	}
	must.Do(t, d.EndRun(t.Context(), c.ID, r.ID))
	must.Do(t, d.Reap(t.Context(), c.ID))
}
