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
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRestoredHost backs a host up by its daemon, goes on, and restores as specs/0010 says. Beside
// the home of a chat that was made since, chatd refuses to start and names its uid. Without it chatd
// starts, and the awake session of the backup is as it was.
func TestRestoredHost(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	a := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	must.Get(d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "echo before >note"}))(t)
	leader := firstProcess(t, a)
	b, err := d.Backup(t.Context())
	must.True(t, err == nil && b.Chats == 1 && filepath.Dir(b.Path) == opt.State, "%+v, %v", b, err)
	later := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "later"}))(t)
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
	out := chatdAnswers(t, "audit", "--verify", "--state", opt.State)
	expect.True(t, strings.Contains(out, "lines hold"), "%v", out)
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
	must.True(t, err == nil, "chatd %s: %v: %s", strings.Join(args, " "), err, errs.String())
	return string(out)
}

// firstProcess is the shell of the chat's terminal.
func firstProcess(t *testing.T, c chat.Chat) (pid int) {
	t.Helper()
	out := must.Get(exec.Command("pgrep", "-o", "-x", "-u", fmt.Sprint(c.UID), "bash").Output())(t)
	must.Get(fmt.Sscan(string(out), &pid))(t)
	return pid
}

// TestLostWhileDown: what is lost of the state, run and home directories while chatd is down, but
// for the records (state.TestLostFiles): chatd starts, the chat is there, asleep where its session
// cannot be adopted, and wakes.
func TestLostWhileDown(t *testing.T) {
	for what, c := range map[string]struct {
		path  string // below the directory of the test; HOME is the chat's
		awake bool   // the session is adopted
		runs  bool   // the background run is there
	}{
		"nothing":            {"none", true, true},
		"a session's record": {"run/sessions", false, true},
		"the cgroups":        {"run/cgroup.json", true, true},
		"background runs":    {"run/runs", true, false},
		"terminal logs":      {"state/logs", true, true},
		"the home":           {"HOME", true, true},
	} {
		t.Run(what, func(t *testing.T) {
			opt := options(t)
			d := startDaemon(t, opt, "")
			a := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
			must.Get(d.AddSchedule(t.Context(), a.ID, chat.ScheduleSpec{
				Every: chat.Duration(30 * time.Minute), Command: "true"}))(t)
			bg := must.Get(d.StartRun(t.Context(), a.ID, chat.RunSpec{Command: "echo over"}))(t)
			if !comes(func() bool {
				r, err := d.ShowRun(t.Context(), a.ID, bg.ID)
				return err == nil && r.State == chat.RunEnded
			}) {
				t.Fatal("the background run does not end")
			}
			d.kill()
			path := filepath.Join(filepath.Dir(opt.State), c.path)
			if c.path == "HOME" {
				path = a.Home
			}
			must.Do(t, os.RemoveAll(path))
			d = startDaemon(t, opt, "")
			got, err := d.Get(t.Context(), a.ID)
			expect.True(t, err == nil && got.Awake == c.awake && got.UID == a.UID,
				"awake %v, uid %d, %v; want %v", got.Awake, got.UID, err, c.awake)
			r, err := d.ShowRun(t.Context(), a.ID, bg.ID)
			expect.True(t, (err == nil) == c.runs, "the run: %+v, %v", r, err)
			fi, err := os.Stat(a.Home)
			expect.True(t, err == nil && fi.Mode().Perm() == 0o700, "the home: %v", err)
			must.Get(d.Sleep(t.Context(), a.ID))(t)
			must.Get(d.Wake(t.Context(), a.ID))(t)
			if r, err := d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "true"}); err != nil || r.Exit != 0 {
				t.Errorf("after a wake: %+v, %v", r, err)
			}
			must.Do(t, d.Reap(t.Context(), a.ID))
			gone(t, opt, a)
		})
	}
}

// TestYoungerDatabase: a database that was lost, or replaced by an older copy, is refused while a
// home, a private /tmp, an account or a line of the audit log has a uid that it never gave. With
// the right one back, or with nothing left of those chats, chatd starts.
func TestYoungerDatabase(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	db := filepath.Join(opt.State, "chatd.db")
	a := asleep(t, m, "a")
	must.Do(t, m.Close())
	old := must.Get(os.ReadFile(db))(t)
	m = must.Get(openManager(t.Context(), opt))(t)
	b := asleep(t, m, "b")
	must.Do(t, m.Close())
	whole := must.Get(os.ReadFile(db))(t)

	log := filepath.Join(opt.State, "audit.jsonl")
	lines := must.Get(os.ReadFile(log))(t)
	tmp, varTmp := privateTrees(opt, b)
	refused := func(what, why string) {
		t.Helper()
		_, err := openManager(t.Context(), opt)
		if !errors.Is(err, chat.ErrExists) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "restore chatd.db and install.key") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must.Do(t, os.WriteFile(db, old, 0o600))
	refused("an older copy beside the log", "audit.jsonl names")
	must.Do(t, os.WriteFile(log, nil, 0o600))
	refused("an older copy beside a home", fmt.Sprintf("of uid %d", b.UID))
	must.Do(t, os.Remove(db))
	refused("no database", "of uid")
	if h, err := provision.Doctor(t.Context(), opt); err != nil || !strings.Contains(strings.Join(h.Broken, "\n"), "younger than what is on this host") {
		t.Errorf("doctor says %q, %v", h.Broken, err)
	}
	moved := map[string]string{}
	for i, trace := range []string{opt.Homes, filepath.Dir(tmp), filepath.Dir(varTmp)} {
		moved[trace] = filepath.Join(filepath.Dir(opt.State), fmt.Sprint("kept", i))
		must.Do(t, os.Rename(trace, moved[trace]))
	}
	refused("accounts alone", "/etc/userdb/")
	for trace, kept := range moved {
		must.Do(t, ignoreGone(os.RemoveAll(trace)))
		must.Do(t, os.Rename(kept, trace))
	}
	must.Do(t, os.WriteFile(db, whole, 0o600))
	must.Do(t, os.WriteFile(log, lines, 0o600))
	m = must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	must.Do(t, errors.Join(m.Reap(ctx, a.ID), m.Reap(ctx, b.ID), m.Close()))

	must.Do(t, os.Remove(db))
	refused("an audit log alone", "audit.jsonl names")
	must.Do(t, os.Remove(log))
	m = must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, m.Close())
}
