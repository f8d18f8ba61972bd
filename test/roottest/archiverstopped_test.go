package roottest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStoppedArchiver: while chatd-archive is stopped, its chat waits, its owner's other chats live,
// and another owner archives. A caller that goes away ends it.
func TestStoppedArchiver(t *testing.T) {
	m := open(t, keepsArchives(t, options(t)))
	ctx := operator(t.Context())
	no := false
	of := func(owner, name string) chat.Chat {
		c, _, err := m.Create(ctx, chat.Spec{Owner: owner, ExternalID: name, Awake: &no})
		must.Do(t, err)
		return c
	}
	a, b := of("ada", "a"), of("bob", "b")
	run(t, m, a.ID, "echo kept >~/kept; head -c 64M /dev/urandom >~/much")
	must.Get(m.Sleep(ctx, a.ID))(t)
	asking, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Archive(asking, a.ID, chat.ToArchive{Keep: true})
		ended <- err
	}()
	stopped := 0
	for end := time.Now().Add(time.Minute); stopped == 0 && time.Now().Before(end); {
		for _, pid := range pidsOf(a.UID) {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "chatd-archive\n" && unix.Kill(pid, unix.SIGSTOP) == nil {
				stopped = pid
			}
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended before: %v", err)
	default:
	}
	must.Get(m.Archive(ctx, b.ID, chat.ToArchive{Keep: true}))(t)
	other := of("ada", "other")
	if r := run(t, m, other.ID, "echo here"); r.Stdout != "here\n" {
		t.Errorf("another chat of its owner: %+v", r)
	}
	leave()
	expect.True(t, <-ended != nil, "an archive that was stopped was made")
	until(t, "it is gone", func() bool { return unix.Kill(stopped, 0) != nil })
	if r := run(t, m, a.ID, "cat ~/kept"); r.Stdout != "kept\n" {
		t.Errorf("its chat: %+v", r)
	}
}
