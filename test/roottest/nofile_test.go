package roottest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestDescriptorsRunOut: chatd-root runs out of descriptors (EMFILE) in the middle of calls. They
// fail and say so, or are done; with descriptors again everything goes on.
func TestDescriptorsRunOut(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "before"})
	must.Do(t, err)
	failed := 0
	for more := 0; more < 40; more += 2 { // so that each step meets the bound
		was := boundDescriptors(t, d.cmd.Process.Pid, more)
		made, _, err := d.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint("more ", more)})
		_, runErr := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "true"})
		must.Do(t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &was, nil))
		d.waitUp(t)
		for _, err := range []error{err, runErr} {
			if err != nil {
				failed++
			}
			if err != nil && !strings.Contains(err.Error(), "too many open files") {
				t.Errorf("with %d descriptors more: %v", more, err)
			}
		}
		if err == nil {
			whole(t, opt, made)
		}
	}
	expect.True(t, failed != 0, "no call failed: the bound was not met")
	afterDescriptors(t, d)
}

// boundDescriptors leaves a process this many descriptors more than it has, and returns its bound.
func boundDescriptors(t *testing.T, pid, more int) (was unix.Rlimit) {
	t.Helper()
	must.Do(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	open := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	to := unix.Rlimit{Cur: uint64(len(open) + more), Max: was.Max}
	must.Do(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &to, nil))
	return was
}

// afterDescriptors uses each chat that is there, and reaps it.
func afterDescriptors(t *testing.T, d *daemon) {
	t.Helper()
	page := must.Get(d.List(t.Context(), chat.Filter{Limit: 1000}))(t)
	for _, c := range page.Chats {
		if c.Phase == chat.Reaping { // its undo failed too; chatd goes on with it
			untilGone(t, d, c.ID)
			continue
		}
		again, _, err := d.Create(t.Context(), chat.Spec{ExternalID: c.ExternalID})
		if err != nil || again.UID != c.UID || !again.Awake {
			t.Errorf("%s afterwards: %+v, %v", c.ExternalID, again, err)
			continue
		}
		r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo on"})
		expect.True(t, err == nil && r.Stdout == "on\n",
			"a run of %s afterwards: %+v, %v", c.ExternalID, r, err)
		must.Do(t, d.Reap(t.Context(), c.ID))
	}
}

// untilGone waits until a chat is not there any more.
func untilGone(t *testing.T, d *daemon, id chat.ID) {
	t.Helper()
	until(t, "the chat is gone", func() bool {
		_, err := d.Get(t.Context(), id)
		return errors.Is(err, chat.ErrNotFound)
	})
}
