package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRestoredHost backs a host up by its daemon, goes on, and restores as specs/0010 says. Beside
// the home of a chat that was made since, chatd refuses to start and names its uid. Without it chatd
// starts, and the awake session of the backup is as it was.
func TestRestoredHost(t *testing.T) {
	needsRoot(t)
	opt := options(t)
	leaveOrphansToInit(t)
	d := startDaemon(t, opt, "")
	a, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
	must.Do(t, err)
	must.Get(d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "echo before >note"}))(t)
	leader := firstProcess(t, a)
	b, err := d.Backup(t.Context())
	must.True(t, err == nil && b.Chats == 1 && filepath.Dir(b.Path) == opt.State, "%+v, %v", b, err)
	later, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "later"})
	must.Do(t, err)
	d.kill()
	aside := filepath.Join(opt.State, "before")
	must.Do(t, os.Mkdir(aside, 0o700))
	move := func(from, to string) {
		t.Helper()
		for _, name := range []string{"chatd.db", "install.key", "audit.jsonl"} {
			must.Do(t, ignoreGone(os.Rename(filepath.Join(from, name), filepath.Join(to, name))))
		}
	}
	unpack := func() {
		t.Helper()
		must.Run(t, exec.Command("tar", "-xpf", b.Path, "-C", opt.State))
	}
	move(opt.State, aside)
	unpack()
	if m, err := openManager(t.Context(), opt); !errors.Is(err, chat.ErrExists) || !strings.Contains(err.Error(), fmt.Sprintf("of uid %d", later.UID)) {
		if err == nil {
			must.Do(t, m.Close())
		}
		t.Fatalf("beside a younger home: %v", err)
	}
	move(aside, opt.State)
	d = startDaemon(t, opt, "")
	must.Do(t, d.Reap(t.Context(), later.ID))
	d.kill()
	move(opt.State, aside)
	unpack()
	d = startDaemon(t, opt, "")
	got, err := d.Get(t.Context(), a.ID)
	if err != nil || !got.Awake || got.UID != a.UID || firstProcess(t, got) != leader {
		t.Errorf("the chat of the backup: %s, awake %v, uid %d, %v; its first process was %d",
			got.Phase, got.Awake, got.UID, err, leader)
	}
	run, err := d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "cat note"})
	expect.True(t, err == nil && run.Stdout == "before\n", "its home: %+v, %v", run, err)
	again, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "later"})
	if must.Do(t, err); again.ID != later.ID {
		t.Errorf("the conversation's id is %s, want %s: the key is another", again.ID, later.ID)
	}
	if out := chatdAnswers(t, "audit", "--verify", "--state", opt.State); !strings.Contains(out, "lines hold") {
		t.Error(out)
	}
	for _, c := range []chat.Chat{a, again} {
		must.Do(t, d.Reap(context.WithoutCancel(t.Context()), c.ID))
	}
}

// chatdAnswers runs a command of chatd and returns what it printed.
func chatdAnswers(t *testing.T, args ...string) string {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(programs.chatd, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chatd %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// firstProcess is the shell of the chat's terminal.
func firstProcess(t *testing.T, c chat.Chat) (pid int) {
	t.Helper()
	out := must.Get(exec.Command("pgrep", "-o", "-x", "-u", fmt.Sprint(c.UID), "bash").Output())(t)
	must.Get(fmt.Sscan(string(out), &pid))(t)
	return pid
}
