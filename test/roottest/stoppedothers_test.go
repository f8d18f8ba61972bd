package roottest

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestStoppedChat: while every process of a chat's session is stopped, its tmux server and a command
// among them, and the supervisor of its background run, others create, run, read files, sleep, wake
// and reap. When they go on, so does the chat.
func TestStoppedChat(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	a, b := create(t, m, "stopped", "default"), create(t, m, "other", "default")
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "until [ -e ~/go ]; do sleep 0.2; done; echo went"})
	stopped := append(pidsOf(a.UID), supervisors(t)...)
	must.True(t, len(stopped) >= 5, "the chat has the processes %v", stopped)
	each := func(s syscall.Signal) {
		for _, pid := range stopped {
			_ = unix.Kill(pid, s)
		}
	}
	each(unix.SIGSTOP)
	t.Cleanup(func() { each(unix.SIGCONT) })
	for range 2 {
		if r := run(t, m, b.ID, "echo said >~/f; cat ~/f"); r.Stdout != "said\n" {
			t.Errorf("the other's run: %+v", r)
		}
		must.Get(m.Sleep(ctx, b.ID))(t)
		must.Get(m.Wake(ctx, b.ID))(t)
	}
	c := create(t, m, "new", "default")
	run(t, m, c.ID, "true")
	must.Do(t, m.Reap(ctx, c.ID))
	if all := len(supervisors(t)); all != 1 {
		t.Errorf("%d supervisors, want the stopped one", all)
	}
	each(unix.SIGCONT)
	run(t, m, a.ID, "touch ~/go")
	if r := awaitRun(t, m, a.ID, r.ID); r.Result == nil || r.Result.Stdout != "went\n" {
		t.Errorf("its run ended with %+v", r)
	}
}
