package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// timeout is far beyond every bound that chatd sets itself (30 s for a prompt,
// 20 s for a client of the terminal): what has not come back by then never does.
const timeout = longEnough

// within fails the test when f does not return.
func within(t testing.TB, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(timeout):
		t.Errorf("%s did not come back within %s", what, timeout)
		return errors.New("did not come back")
	}
}

// hostileBashrc are startup files of chats that do not want to come up.
var hostileBashrc = map[string]string{
	"never-prompts": "exec sleep 1000\n",
	"exits":         "exit 3\n",
	"dies":          "kill -9 $$\n",
	"eats-prompt":   "exec 9<>/opt/chatd/prompt; (cat <&9 >/dev/null &)\n",
	"floods-prompt": "(yes >/opt/chatd/prompt &)\nyes | head -c 65536 >/opt/chatd/prompt\n",
	"kills-tmux":    "pkill -9 tmux\n",
	"stops-all":     "kill -STOP -1\n",
}

// TestAttackStubborn: chats that do not play along when the daemon waits for them. Whatever they
// do, calls come back, and the chat can be reaped. The cases wait for the daemon's own bounds, so
// they run simultaneously.
func TestAttackStubborn(t *testing.T) {
	opt := attackOptions(t)
	for name, bashrc := range hostileBashrc {
		skeleton(t, opt, name, bashrc)
	}
	m := open(t, opt)
	cases := map[string]func(testing.TB){
		"stopped server":             func(t testing.TB) { stoppedServer(t, m) },
		"silent server":              func(t testing.TB) { falseServerCase(t, m, "silent") },
		"server that talks nonsense": func(t testing.TB) { falseServerCase(t, m, "nonsense", strings.Repeat("nonsense", 100)) },
		"stdout lent out":            func(t testing.TB) { lentStdout(t, m) },
		"ends itself":                func(t testing.TB) { endsItself(t, m) },
	}
	for name := range hostileBashrc {
		cases["bashrc "+name] = func(t testing.TB) { hostileStart(t, m, name) }
	}
	var all sync.WaitGroup
	for name, do := range cases {
		// Not t.Parallel, which runs no more simultaneously than there are CPUs.
		all.Go(func() { do(namedTest{t, name}) })
	}
	all.Wait()
}

// namedTest is a test under another name in its messages, for cases that run simultaneously; a
// fatal one ends its own goroutine only.
type namedTest struct {
	testing.TB
	name string
}

func (n namedTest) Logf(format string, args ...any) {
	n.TB.Helper()
	n.TB.Logf(n.name+": "+format, args...)
}

func (n namedTest) Errorf(format string, args ...any) {
	n.TB.Helper()
	n.TB.Errorf(n.name+": "+format, args...)
}

func (n namedTest) Fatalf(format string, args ...any) {
	n.TB.Helper()
	n.Errorf(format, args...)
	runtime.Goexit()
}

func (n namedTest) Fatal(args ...any) {
	n.TB.Helper()
	n.Fatalf("%s", fmt.Sprint(args...))
}

// skeleton adds a profile whose homes begin with this .bashrc.
func skeleton(t *testing.T, opt provision.Options, name, bashrc string) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(dir+"/.bashrc", []byte(bashrc), 0o644))
	p := opt.Profiles["default"]
	p.Name, p.Skeleton = name, dir
	opt.Profiles[name] = p
}

// hostileStart: create gives a session or says what is wrong, and either way
// the chat can be reaped.
func hostileStart(t testing.TB, m *manager, name string) {
	ctx := operator(context.Background())
	external := "hostile " + name
	err := within(t, "create", func() error {
		_, _, err := m.Create(ctx, chat.Spec{ExternalID: external, Profile: name})
		return err
	})
	t.Logf("create: %v", err)
	if err != nil && !strings.HasPrefix(err.Error(), "cannot ") {
		t.Errorf("create said %q", err)
	}
	page, err := m.List(ctx, chat.Filter{ExternalID: external})
	must.True(t, err == nil && len(page.Chats) == 1, "the chat is not there: %+v, %v", page, err)
	reapWithin(t, m, page.Chats[0])
}

func reapWithin(t testing.TB, m *manager, c chat.Chat) {
	t.Helper()
	expect.Is(t, within(t, "reap", func() error { return m.Reap(operator(context.Background()), c.ID) }), nil,
		"reap")
	if _, err := os.Lstat(c.Home); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", c.Home, err)
	}
	if out, err := exec.Command("pgrep", "-U", fmt.Sprint(c.UID)).Output(); err == nil {
		t.Errorf("processes are left of uid %d: %s", c.UID, out)
	}
}

// unanswered makes sure that looking and typing come back with an error, that a
// run is not disturbed, and that the chat can be reaped.
func unanswered(t testing.TB, m *manager, i inmate) {
	t.Helper()
	ctx := operator(context.Background())
	var both sync.WaitGroup
	for what, do := range map[string]func() error{
		"screen": func() error { _, err := m.Screen(ctx, i.ID); return err },
		"input":  func() error { return m.Input(ctx, i.ID, chat.Input{Text: "x", Enter: true}) },
	} {
		both.Go(func() {
			err := within(t, what, do)
			expect.True(t, err != nil && strings.HasPrefix(err.Error(), "cannot "),
				"%s: got %v, want an error", what, err)
			t.Logf("%s: %v", what, err)
		})
	}
	both.Wait()
	expect.Is(t, within(t, "run", func() error {
		_, err := m.Run(ctx, i.ID, chat.RunSpec{Command: "true"})
		return err
	}), nil, "run")
	reapWithin(t, m, i.Chat)
}

func stoppedServer(t testing.TB, m *manager) {
	a := inmateOf(t, m, "stopped", "default")
	outcomes(t, "A", a.try(t, "kill-named", "STOP", "tmux: server"), "ok")
	unanswered(t, m, a)
}

func falseServerCase(t testing.TB, m *manager, name string, say ...string) {
	a := inmateOf(t, m, "false server "+name, "default")
	a.typeLine(t, strings.Join(append([]string{"setsid", a.program, "false-server", "/run/chat/tmux.sock", a.in("up")}, quoteAll(say)...), " ")+" >~/log 2>&1 &")
	must.Do(t, awaitFile(a.in("up")))
	unanswered(t, m, a)
}

func quoteAll(words []string) []string {
	for i, w := range words {
		words[i] = fmt.Sprintf("%q", w)
	}
	return words
}

// lentStdout: a run hands its stdout to a process of the session, which keeps
// it. The run has ended all the same.
func lentStdout(t testing.TB, m *manager) {
	a := inmateOf(t, m, "lent", "default")
	a.typeLine(t, "setsid "+a.program+" keep-stdout ~/lend ~/up &")
	must.Do(t, awaitFile(a.in("up")))
	err := within(t, "run", func() error {
		_, err := m.Run(operator(context.Background()), a.ID, chat.RunSpec{Argv: []string{a.program, "lend-stdout", a.in("lend"), a.in("up")}})
		return err
	})
	t.Logf("run: %v", err)
	expect.Is(t, expect.Err(os.Stat(a.in("up.got"))), nil, "control: the session did not get it")
	reapWithin(t, m, a.Chat)
}

// endsItself: a chat that ends its terminal, or tries to end pid 1, is asleep
// or not, and the next input finds or wakes it.
func endsItself(t testing.TB, m *manager) {
	a := inmateOf(t, m, "ends itself", "default")
	for _, command := range []string{"kill -9 1", "pkill -9 tmux", "kill -9 -1"} {
		_, err := m.Run(operator(t.Context()), a.ID, chat.RunSpec{Command: command})
		t.Logf("%s: %v", command, err)
		expect.Is(t, within(t, "input", func() error { return inputUntilItWorks(m, a) }), nil,
			"input after %s", command)
	}
	reapWithin(t, m, a.Chat)
}

// inputUntilItWorks types again while the session that was ended is still on its
// way out.
func inputUntilItWorks(m *manager, a inmate) error {
	for end := time.Now().Add(timeout / 2); ; time.Sleep(20 * time.Millisecond) {
		err := m.Input(operator(context.Background()), a.ID, chat.Input{Text: "echo still here", Enter: true})
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
