package roottest

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestStoppedFront: a front that is stopped is killed and replaced. Callers wait until then, the
// listener stays, sessions and background runs go on, and status says what happened.
func TestStoppedFront(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	defer d.kill()
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
	must.Do(t, err)
	r, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{Command: "until [ -e ~/go ]; do sleep 0.1; done; echo went"})
	must.Do(t, err)
	stopped := frontOf(t, d.cmd.Process.Pid)
	must.Do(t, unix.Kill(stopped, unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(stopped, unix.SIGCONT) })
	until(t, "another front answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		got, err := d.Client.Run(ctx, c.ID, chat.RunSpec{Command: "touch ~/go; echo here"})
		return err == nil && got.Stdout == "here\n"
	})
	if now := frontOf(t, d.cmd.Process.Pid); now == stopped {
		t.Errorf("the front is still process %d", now)
	}
	until(t, "the run ends", func() bool {
		now, err := d.ShowRun(t.Context(), c.ID, r.ID)
		return err == nil && now.Result != nil && now.Result.Stdout == "went\n"
	})
	st, err := d.Status(t.Context())
	if must.Do(t, err); len(st.Failures) != 1 || !strings.Contains(st.Failures[0].Error, "did not answer") {
		t.Errorf("status has the failures %+v", st.Failures)
	}
	until(t, "the finding goes", func() bool {
		st, err := d.Status(t.Context())
		return err == nil && !strings.Contains(strings.Join(st.Findings, "\n"), "the front")
	})
	must.Do(t, d.Reap(t.Context(), c.ID))
}
