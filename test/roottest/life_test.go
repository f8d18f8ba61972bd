package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// hostileIDs are unusual external ids that a caller may send.
var hostileIDs = []string{"../../etc", "+49 170 123 45 67", "💬", "a\nb", "-rf", "$(reboot)", "'; drop table", strings.Repeat("x", 512), "chat-0123456789abcdef", " "}

func TestLife(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	for _, external := range hostileIDs {
		c := create(t, m, external, "default")
		if c.ExternalID != external || c.Phase != chat.Ready || !c.Awake || c.User != "chat-"+string(c.ID) {
			t.Errorf("create %q: %+v", external, c)
		}
		whole(t, opt, c)
		r := run(t, m, c.ID, "id -u; pwd; echo $HOME")
		expect.True(t, r.Stdout == fmt.Sprintf("%d\n%s\n%s\n", c.UID, c.Home, c.Home) && r.Exit == 0, "run in %s: %+v", c.ID, r)
		must.Do(t, m.Reap(ctx, c.ID))
		gone(t, opt, c)
		expect.Is(t, expect.Err(m.Get(ctx, c.ID)), chat.ErrNotFound, "a reaped chat")
	}
	expect.Is(t, m.Reap(ctx, "0123456789abcdef"), chat.ErrNotFound, "reap of nobody")
}

func TestTerminal(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "terminal", "default")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo $((6*7)); tty", Enter: true}))
	waitScreen(t, m, c.ID, "42\n/dev/pts/0")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "sleep 1000", Enter: true}))
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"C-c"}}))
	waitScreen(t, m, c.ID, "^C")
	expect.Is(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"kill-server"}}), chat.ErrInvalid,
		"an unknown key")
	// The shell ends: the chat is asleep, and the next input wakes it.
	leave(t, m, c.ID)
	waitAwake(t, m, c.ID, false)
	expect.Is(t, expect.Err(m.Screen(ctx, c.ID)), chat.ErrWrongPhase, "screen of a chat asleep")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo again", Enter: true}))
	waitScreen(t, m, c.ID, "again")
	got, err := m.Sleep(ctx, c.ID)
	expect.True(t, err == nil && !got.Awake, "sleep: %+v, %v", got, err)
	left := pidsOf(c.UID)
	expect.True(t, len(left) == 0, "asleep with processes %v", left)
}

// TestScreenMeetsTheEnd: a caller that reads a screen while its shell ends is told that the chat is
// asleep, and never an internal error.
func TestScreenMeetsTheEnd(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "screen meets the end", "default")
	for range 5 {
		must.Get(m.Wake(ctx, c.ID))(t)
		leave(t, m, c.ID)
		err := error(nil)
		until(t, "the screen is gone", func() bool { err = expect.Err(m.Screen(ctx, c.ID)); return err != nil })
		expect.True(t, errors.Is(err, chat.ErrWrongPhase), "%v, want ErrWrongPhase", err)
		waitAwake(t, m, c.ID, false)
	}
}

func waitScreen(t *testing.T, m *manager, id chat.ID, want string) {
	t.Helper()
	var last string
	if !comes(func() bool {
		s, err := m.Screen(operator(t.Context()), id)
		last = fmt.Sprint(s.Text, err)
		return err == nil && strings.Contains(s.Text, want)
	}) {
		t.Fatalf("the screen never showed %q; last:\n%s", want, last)
	}
}

func waitAwake(t *testing.T, m *manager, id chat.ID, want bool) {
	t.Helper()
	until(t, fmt.Sprintf("chat %s gets awake=%v", id, want), func() bool {
		c, err := m.Get(operator(t.Context()), id)
		return err == nil && c.Awake == want
	})
}

func TestSimultaneousCreates(t *testing.T) {
	m := open(t, options(t))
	var created atomic.Int32
	ids := make([]chat.ID, 50)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			c, first, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "the same first message"})
			expect.NoError(t, err)
			if first {
				created.Add(1)
			}
			if ids[i] = c.ID; !c.Awake {
				t.Error("a caller got a chat that is not awake")
			}
		})
	}
	wg.Wait()
	if created.Load() != 1 {
		t.Errorf("%d callers created the chat, want 1", created.Load())
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("two chats: %s and %s", id, ids[0])
		}
	}
}

// TestCreateReapRace creates and reaps one conversation from two sides at once:
// every answer is one of the few that make sense, and in the end all is gone.
func TestCreateReapRace(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	uids := map[uint32]chat.ID{}
	for range rounds {
		var wg sync.WaitGroup
		var got [2]chat.Chat
		var first [2]bool
		for i := range got {
			wg.Go(func() {
				c, created, err := m.Create(ctx, chat.Spec{ExternalID: "race", Awake: new(false)})
				if err != nil && !errors.Is(err, chat.ErrBusy) {
					t.Errorf("create: %v", err)
				}
				if err == nil {
					got[i], first[i] = c, created
					if err := m.Reap(ctx, c.ID); err != nil && !errors.Is(err, chat.ErrNotFound) {
						t.Errorf("reap: %v", err)
					}
				}
			})
		}
		wg.Wait()
		for i, c := range got {
			if _, again := uids[c.UID]; again && first[i] {
				t.Fatalf("uid %d was given twice", c.UID)
			}
			if first[i] {
				uids[c.UID] = c.ID
			}
		}
	}
	page, err := m.List(ctx, chat.Filter{})
	expect.True(t, err == nil && len(page.Chats) == 0, "left over: %+v, %v", page.Chats, err)
}

// TestOwners: two owners have two chats of one external id, and see their own. TestAttackNotFound has
// what they get of another's.
func TestOwners(t *testing.T) {
	m := open(t, options(t))
	one, two := asBridge(t.Context(), "one"), asBridge(t.Context(), "two")
	spec := chat.Spec{ExternalID: "shared name", Awake: new(false)}
	a := must.First(m.Create(one, spec))(t)
	b, created, err := m.Create(two, spec)
	expect.True(t, err == nil && created && a.ID != b.ID && a.UID != b.UID, "two owners share a chat: %s %s, %v", a.ID, b.ID, err)
	page, err := m.List(one, chat.Filter{})
	expect.True(t, err == nil && len(page.Chats) == 1 && page.Chats[0].ID == a.ID, "list of one: %+v, %v", page, err)
	expect.Is(t, expect.Err(m.Get(t.Context(), a.ID)), chat.ErrNotFound, "nobody gets a chat")
	expect.True(t, expect.Err(m.Create(t.Context(), chat.Spec{ExternalID: "x"})) != nil, "nobody created a chat")
}

func TestRestartAdopts(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	awake, asleepChat := create(t, m, "awake", "default"), asleep(t, m, "asleep")
	must.Do(t, m.Input(ctx, awake.ID, chat.Input{Text: "marker=$$; echo marker $marker", Enter: true}))
	waitScreen(t, m, awake.ID, "marker ")
	before := terminalOf(t, awake.UID)
	must.Do(t, m.Close())

	// A session directory of no chat, and one with false contents.
	must.Do(t, os.MkdirAll(filepath.Join(opt.Run, "sessions", "00000000000000aa"), 0o711))
	lie := filepath.Join(opt.Run, "sessions", string(asleepChat.ID))
	must.Do(t, os.MkdirAll(lie, 0o711))
	must.Do(t, os.WriteFile(filepath.Join(lie, "session.json"), fmt.Appendf(nil, `{"leader":{"pid":%d,"start":1,"boot":"x"}}`, os.Getpid()), 0o600))

	m = open(t, opt)
	if after := terminalOf(t, awake.UID); !slices.Equal(after, before) {
		t.Errorf("pid 1, the terminal's server and its shell were %v before the restart, and are %v", before, after)
	}
	waitScreen(t, m, awake.ID, "marker ")
	r := run(t, m, awake.ID, "echo in; ps -e -o comm=")
	expect.True(t, strings.Contains(r.Stdout, "tmux"), "a run in an adopted session sees no tmux: %+v", r)
	c, err := m.Get(ctx, asleepChat.ID)
	expect.True(t, err == nil && !c.Awake, "a chat that was asleep: %+v, %v", c, err)
	for _, dir := range []string{lie, filepath.Join(opt.Run, "sessions", "00000000000000aa")} {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	// The watch of an adopted session works too.
	leave(t, m, awake.ID)
	waitAwake(t, m, awake.ID, false)
}

// terminalOf are the session's pid 1, the terminal's server and its shell.
func terminalOf(t *testing.T, uid uint32) []int {
	t.Helper()
	for _, pid := range pidsOf(uid) {
		if commOf(pid) != "tmux: server" {
			continue
		}
		parent := must.Get(statusField(pid, "PPid"))(t)
		for _, child := range childrenOf(t, pid) { // what keeps the log is one, too
			if commOf(child) == "bash" {
				return []int{number(parent), pid, child}
			}
		}
	}
	t.Fatalf("uid %d has no terminal among %v", uid, pidsOf(uid))
	return nil
}

// commOf is the name of a process, empty where it has ended.
func commOf(pid int) string {
	return strings.TrimSpace(text(fmt.Sprintf("/proc/%d/comm", pid)))
}

func TestSecondManager(t *testing.T) {
	opt := options(t)
	open(t, opt)
	expect.Is(t, expect.Err(openManager(t.Context(), opt)), chat.ErrBusy,
		"a second daemon on one state directory")
}

// TestReconcileMends breaks a chat behind chatd's back, one thing at a time.
func TestReconcileMends(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := create(t, m, "mended", "default")
	_, varTmp := privateTrees(opt, c)
	for name, harm := range map[string]func() error{
		"account name gone":   func() error { return os.Remove("/etc/userdb/" + c.User + ".user") },
		"account number gone": func() error { return os.Remove(fmt.Sprintf("/etc/userdb/%d.group", c.UID)) },
		"account changed":     func() error { return os.WriteFile("/etc/userdb/"+c.User+".user", []byte(`{"userName":"x"}`), 0o644) },
		"home open":           func() error { return os.Chmod(c.Home, 0o777) },
		"home of root":        func() error { return os.Chown(c.Home, 0, 0) },
		"tmp gone":            func() error { return os.Remove(varTmp) },
		"rules flushed":       func() error { return exec.Command("iptables", "-F").Run() },
		"rules flushed in v6": func() error { return exec.Command("ip6tables", "-F", "OUTPUT").Run() },
	} {
		must.Do(t, harm())
		m.Reconcile(ctx)
		whole(t, opt, c)
		h := must.Get(m.Host(ctx))(t)
		for _, l := range h.Layers {
			if want := promised(t, l.Name); l.State != want {
				t.Errorf("%s: after reconcile layer %s is %s, want %s: %s", name, l.Name, l.State, want, l.Probe)
			}
		}
		found := findings(h)
		expect.True(t, len(found) == 0, "%s: findings %v", name, found)
	}
	r := run(t, m, c.ID, "true")
	expect.True(t, r.Exit == 0, "after all that: %+v", r)
	// chatd reports what it does not know, and does not remove it.
	stray := filepath.Join(opt.Homes, "ffffffffffffffff")
	must.Do(t, os.Mkdir(stray, 0o700))
	m.Reconcile(ctx)
	h := must.Get(m.Host(ctx))(t)
	if found := findings(h); len(found) != 1 || !strings.Contains(found[0], stray) {
		t.Errorf("findings %v, want the stray home", found)
	}
	must.Do(t, os.Remove(stray))
}

// findings are those about chats; what the host's own settings lack, or the profiles leave
// open, is not the test's.
func findings(h chat.Host) []string {
	return slices.DeleteFunc(slices.Clone(h.Findings), func(f string) bool {
		return strings.Contains(f, "sysctl") || strings.HasPrefix(f, "profile ")
	})
}

// TestBashrcThatExits: a chat that ends its own shell before the prompt gets a
// plain one, to mend it with.
func TestBashrcThatExits(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "locked out", "default")
	run(t, m, c.ID, "echo exit > ~/.bashrc")
	must.Get(m.Sleep(ctx, c.ID))(t)
	must.Get(m.Wake(ctx, c.ID))(t)
	waitScreen(t, m, c.ID, "left ~/.bashrc out")
	prints(t, m, c.ID, "rm ~/.bashrc; echo mended", "mended\n")
	must.Get(m.Sleep(ctx, c.ID))(t)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo $((6*7))", Enter: true}))
	waitScreen(t, m, c.ID, "42")
}

func TestUseraddBackend(t *testing.T) {
	opt := options(t)
	opt.Account = "useradd"
	m := open(t, opt)
	c := create(t, m, "by useradd", "default")
	whole(t, opt, c)
	b := must.Get(os.ReadFile("/etc/passwd"))(t)
	expect.True(t, strings.Contains(string(b), c.User+":"), "the account is not in /etc/passwd")
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), c.User) {
			t.Errorf("%s gives the chat subordinate ids", file)
		}
	}
	// The record names the backend of the account: a later change of the default does not matter.
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	gone(t, opt, c)
}

func TestRuns(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "runs", "default")
	ctx := operator(t.Context())
	exec := func(spec chat.RunSpec) chat.RunResult {
		t.Helper()
		return must.Get(m.Run(ctx, c.ID, spec))(t)
	}
	if r := exec(chat.RunSpec{Argv: []string{"printf", "%s|", "a b", "$HOME", "-rf"}}); r.Stdout != "a b|$HOME|-rf|" {
		t.Errorf("argv: %+v", r)
	}
	if r := exec(chat.RunSpec{Command: "cat; echo $A >&2; exit 7", Stdin: "in\n", Env: map[string]string{"A": "x y"}}); r.Stdout != "in\n" || r.Stderr != "x y\n" || r.Exit != 7 {
		t.Errorf("streams: %+v", r)
	}
	if r := exec(chat.RunSpec{Command: "kill -9 $$"}); r.Exit != -1 || r.Signal != "SIGKILL" || r.TimedOut || r.OOMKilled {
		t.Errorf("signal: %+v", r)
	}
	if r := exec(chat.RunSpec{Argv: []string{"no-such-program"}}); r.Exit != 127 || !strings.Contains(r.Stderr, "no-such-program") {
		t.Errorf("no such program: %+v", r)
	}
	if r := exec(chat.RunSpec{Argv: []string{"sudo", "id"}}); r.Exit != 126 || !strings.Contains(r.Stderr, "refused") {
		t.Errorf("a shim: %+v", r)
	}
	expect.Is(t, expect.Err(m.Run(ctx, c.ID, chat.RunSpec{Command: "true", Cwd: "/nonexistent"})), chat.ErrInvalid,
		"cwd that is not there")
	r := exec(chat.RunSpec{Command: "yes | head -c 3000000; echo short >&2"})
	expect.True(t, r.Truncated && r.StdoutBytes == 3000000 && len(r.Stdout) <= chat.DefaultOutputMax &&
		len(r.Stdout) >= chat.DefaultOutputMax-100 && r.Stderr == "short\n", "3 MB of output: %+.100v", r)
	r = exec(chat.RunSpec{Command: "cat", Stdin: strings.Repeat("x", chat.MaxStdin)})
	expect.True(t, r.StdoutBytes == chat.MaxStdin && !r.Truncated, "stdin: %d bytes come back", r.StdoutBytes)
	// Everything a run leaves is ended with it, and does not hold its answer up.
	r = exec(chat.RunSpec{Command: "setsid sh -c 'trap \"\" TERM HUP; sleep 5000 & sleep 5000' & sleep 5000 & echo started"})
	expect.True(t, r.Stdout == "started\n" && r.Exit == 0, "background: %+v", r)
	r = exec(chat.RunSpec{Command: "setsid sleep 5000 & trap '' TERM; while :; do sleep 1; done", Timeout: chat.Duration(300 * time.Millisecond)})
	expect.True(t, r.TimedOut, "timeout: %+v", r)
	r = exec(chat.RunSpec{Command: "ps -e -o args="})
	expect.True(t, !strings.Contains(r.Stdout, "sleep"), "runs left processes: %s", r.Stdout)
	r = exec(chat.RunSpec{Command: "perl -e '$x = \"a\" x 600000000'"})
	expect.True(t, r.OOMKilled, "a hog: %+v", r)
	r = exec(chat.RunSpec{Command: "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"})
	expect.True(t, r.CPUMS != 0 && r.WallMS != 0 && r.MemoryPeak != 0 && r.Exit == 0, "what it took: %+v", r)
	// The terminal has outlived all of it.
	if c, err := m.Get(ctx, c.ID); err != nil || !c.Awake {
		t.Errorf("after the runs: %+v, %v", c, err)
	}
}

// leave has the shell of a chat exit. The session may end before tmux's client has answered.
func leave(t testing.TB, m *manager, id chat.ID) {
	t.Helper()
	err := m.Input(operator(t.Context()), id, chat.Input{Text: "exit", Enter: true})
	if !errors.Is(err, chat.ErrWrongPhase) {
		must.Do(t, err)
	}
}
