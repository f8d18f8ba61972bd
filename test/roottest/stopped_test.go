package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
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
		prints(t, m, b.ID, "echo said >~/f; cat ~/f", "said\n")
		must.Get(m.Sleep(ctx, b.ID))(t)
		must.Get(m.Wake(ctx, b.ID))(t)
	}
	c := create(t, m, "new", "default")
	run(t, m, c.ID, "true")
	must.Do(t, m.Reap(ctx, c.ID))
	all := len(supervisors(t))
	expect.True(t, all == 1, "%d supervisors, want the stopped one", all)
	each(unix.SIGCONT)
	run(t, m, a.ID, "touch ~/go")
	if r := awaitRun(t, m, a.ID, r.ID); r.Result == nil || r.Result.Stdout != "went\n" {
		t.Errorf("its run ended with %+v", r)
	}
}

// TestStoppedRoot: while chatd-root is stopped, sessions and background runs go on, and callers wait.
// When it goes on, the front is the same and what was asked is done. systemd ends one that stays
// stopped: it sends no sign of life (TestWatchdog).
func TestStoppedRoot(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
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
	asked := going(func() string {
		got, err := d.Client.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo late"})
		return fmt.Sprintln(strings.TrimSpace(got.Stdout), err)
	})
	was = size()
	until(t, "the run goes on", func() bool { return size() > was+4 })
	select {
	case answer := <-asked:
		t.Errorf("a stopped chatd-root answers: %s", answer)
	default:
	}
	must.Do(t, unix.Kill(root, unix.SIGCONT))
	expect.Equal(t, <-asked, "late <nil>\n", "what was asked meanwhile")
	now := frontOf(t, root)
	expect.True(t, now == front, "the front is process %d, was %d", now, front)
	must.Do(t, d.EndRun(t.Context(), c.ID, r.ID))
}

// TestStoppedFront: a front that is stopped is killed and replaced. Callers wait until then, the
// listener stays, sessions and background runs go on, and status says what happened.
func TestStoppedFront(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
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
	now := frontOf(t, d.cmd.Process.Pid)
	expect.True(t, now != stopped, "the front is still process %d", now)
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
}

// TestStoppedEnforcer: while the enforcer is stopped, chats without rules are created, sleep and
// wake. It is killed and replaced, and then a chat with rules begins, and those of the chat that was
// awake hold.
func TestStoppedEnforcer(t *testing.T) {
	opt := ruledOptions(t, "access: {useDefaults: false, deny: ['**/.env']}")
	m := open(t, opt)
	ctx := operator(t.Context())
	kept := create(t, m, "kept", "ruled")
	var hung []string
	waited := true
	for try := 0; waited && try < 3; try++ { // the host may take longer for them than for another enforcer
		until(t, "there is an enforcer", func() bool { hung = enforcersOf(opt); return len(hung) == 2 })
		signalAll(hung, syscall.SIGSTOP)
		t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
		free := create(t, m, "free", "default")
		must.Get(m.Sleep(ctx, free.ID))(t)
		must.Get(m.Wake(ctx, free.ID))(t)
		waited = !slices.Equal(enforcersOf(opt), hung)
		must.Do(t, m.Reap(ctx, free.ID))
	}
	expect.True(t, !waited, "a chat without rules waits for the enforcer")
	later := create(t, m, "later", "ruled")
	if now := enforcersOf(opt); slices.ContainsFunc(now, func(pid string) bool { return slices.Contains(hung, pid) }) {
		t.Errorf("the enforcers are %v, were %v", now, hung)
	}
	for _, c := range []chat.Chat{kept, later} {
		r := run(t, m, c.ID, "echo x >.env; cat .env")
		expect.True(t, r.Exit != 0, "a denied file is read: %+v", r)
	}
	st, err := m.Status(ctx)
	if must.Do(t, err); len(st.Failures) == 0 || !strings.Contains(st.Failures[0].Error, "opens that it decides wait") {
		t.Errorf("status has the failures %+v", st.Failures)
	}
	until(t, "the finding goes", func() bool {
		st, err := m.Status(ctx)
		return err == nil && !strings.Contains(strings.Join(st.Findings, "\n"), "the enforcer")
	})
}

// TestStartBesideStoppedEnforcer: chatd-root starts, and adopts chats, where the enforcer that it
// finds is stopped.
func TestStartBesideStoppedEnforcer(t *testing.T) {
	opt := ruledOptions(t, "access: {useDefaults: false, deny: ['**/.env']}")
	m := must.Get(openManager(t.Context(), opt))(t)
	kept, free := create(t, m, "kept", "ruled"), create(t, m, "free", "default")
	must.Do(t, m.Close())
	hung := enforcersOf(opt)
	signalAll(hung, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
	m = open(t, opt)
	for _, c := range []chat.Chat{kept, free} {
		got, err := m.Get(operator(t.Context()), c.ID)
		expect.True(t, err == nil && got.Awake, "chat %s: awake %v, %v", c.ExternalID, got.Awake, err)
	}
	r := run(t, m, kept.ID, "echo x >.env; cat .env")
	expect.True(t, r.Exit != 0, "a denied file is read: %+v", r)
}

// TestEgressStopped: nobody is told that a chat's connections are cut by a chatd-egress that does
// not answer; the change holds once it does.
func TestEgressStopped(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	m := open(t, opt)
	a := inmateOf(t, m, "stopped", "named")
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	pids := egressesOf(opt)
	signalAll(pids, syscall.SIGSTOP)
	err := tryPatch(t, m, a.ID, `{"egress_remove": ["api.example.test:7000"]}`)
	signalAll(pids, syscall.SIGCONT)
	expect.True(t, errors.Is(err, chat.ErrBusy), "the answer is %v, want busy", err)
	until(t, "the change holds", func() bool {
		return a.try(t, "say", "api.example.test:7000", "x") == "NXDOMAIN"
	})
}

// TestEgressHangs: a chatd-egress that does not answer is killed and replaced. Chats that are awake
// connect again, others sleep and wake meanwhile.
func TestEgressHangs(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	m := open(t, opt)
	a := inmateOf(t, m, "hangs", "named")
	b := inmateOf(t, m, "meanwhile", "named")
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	hung := egressesOf(opt)
	signalAll(hung, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(hung, syscall.SIGCONT) })
	must.Get(m.Sleep(operator(t.Context()), b.ID))(t)
	until(t, "another one carries", func() bool {
		now := egressesOf(opt)
		return len(now) > 0 && !slices.Equal(now, hung)
	})
	outcomes(t, "after", a.try(t, "say", "api.example.test:7000", "x"), "ok")
}

// TestStoppedArchiver: while chatd-archive is stopped, its chat waits, its owner's other chats live,
// and another owner archives. A caller that goes away ends it.
func TestStoppedArchiver(t *testing.T) {
	m := open(t, keepsArchives(t, options(t)))
	ctx := operator(t.Context())
	of := func(owner, name string) chat.Chat {
		return must.First(m.Create(ctx, chat.Spec{Owner: owner, ExternalID: name, Awake: new(false)}))(t)
	}
	a, b := of("ada", "a"), of("bob", "b")
	run(t, m, a.ID, "echo kept >~/kept; head -c 64M /dev/urandom >~/much")
	must.Get(m.Sleep(ctx, a.ID))(t)
	asking, leave := context.WithCancel(ctx)
	defer leave()
	ended := going(func() error { return expect.Err(m.Archive(asking, a.ID, chat.ToArchive{Keep: true})) })
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
	prints(t, m, other.ID, "echo here", "here\n")
	leave()
	expect.True(t, <-ended != nil, "an archive that was stopped was made")
	until(t, "it is gone", func() bool { return unix.Kill(stopped, 0) != nil })
	prints(t, m, a.ID, "cat ~/kept", "kept\n")
}
