package roottest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackProcesses: chat A tries to see, signal, trace and measure the
// processes of B.
func TestAttackProcesses(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := inmateOf(t, m, "process a", "default"), inmateOf(t, m, "process b", "default")
	const word = "31415.92653"
	for _, i := range []inmate{a, b} {
		i.background(t, "serving", "serve-unix", i.in("s-"+word+i.User), i.in("serving"))
	}
	pid, own := fmt.Sprint(b.pidOf(t, "tmux: server")), a.sh(t, "pgrep -x 'tmux: server'")
	// A pid that B has on the host may be one that A has inside.
	const gone = "ESRCH EPERM EINVAL"
	for _, c := range []struct {
		name      string
		do        []string
		want      string
		host, own []string
	}{
		{"see B's command lines", []string{"seek", word + b.User}, "ESRCH", []string{"seek", word + b.User}, []string{"seek", word + a.User}},
		{"signal 0", []string{"kill", pid, "0"}, gone, []string{"kill", pid, "0"}, []string{"kill", own, "0"}},
		{"SIGKILL", []string{"kill", pid, "9"}, gone, nil, []string{"child-then", "kill", "9"}},
		{"pidfd_open", []string{"pidfd", pid}, gone, []string{"pidfd", pid}, []string{"pidfd", own}},
		{"ptrace", []string{"ptrace", pid}, gone, []string{"ptrace", pid}, []string{"child-then", "ptrace"}},
		{"read memory", []string{"memory-of", pid}, gone, []string{"memory-of", pid}, []string{"child-then", "memory-of"}},
		{"open memory", []string{"read", "/proc/" + pid + "/mem"}, "ENOENT", []string{"stat", "/proc/" + pid + "/mem"}, []string{"stat", "/proc/" + own + "/mem"}},
		{"read limits", []string{"limits-of", pid}, gone, nil, []string{"child-then", "limits-of"}},
		{"priority of B's uid", []string{"priority-of-uid", fmt.Sprint(b.UID)}, gone, []string{"priority-of-uid", fmt.Sprint(b.UID)}, []string{"priority-of-uid", fmt.Sprint(a.UID)}},
		{"CPUs of a process", []string{"cpus-of", pid}, gone, []string{"cpus-of", pid}, []string{"child-then", "cpus-of"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcomes(t, "A", a.try(t, c.do...), c.want)
			if c.host != nil {
				outcomes(t, "control: root on the host", asHost(t, c.host...), "ok")
			}
			outcomes(t, "control: A to itself", a.try(t, c.own...), "ok")
		})
	}
	t.Run("kill everybody", func(t *testing.T) {
		before := a.pidOf(t, "tmux: server")
		r := run(t, m, a.ID, "kill -9 -1")
		if !comes(func() bool { return !alive(before) }) { // the kernel takes its time on a busy host
			t.Errorf("control: A could not end its own processes: %+v", r)
		}
		expect.True(t, alive(number(pid)), "B's terminal is gone")
	})
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	s, err := statusField(pid, "State")
	return err == nil && !strings.HasPrefix(s, "Z")
}

// TestAttackAmbush: the session of A lies in wait for the commands that chatd
// sends into it, to take one over before it is confined.
func TestAttackAmbush(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "ambush", "default")
	got := lieInWait(t, a, 40)
	var met int
	expect.True(t, expect.Err(fmt.Sscanf(got, "met %d, took over none", &met)) == nil && met != 0,
		"got %q, want some met and none taken over", got)
	t.Log(got)
}

// lieInWait has the session's own shell start the ambush, has n commands run
// past it, and returns what it says.
func lieInWait(t *testing.T, a inmate, n int) string {
	t.Helper()
	a.typeLine(t, a.program+" ambush ~/stop >~/ambush.new; mv ~/ambush.new ~/ambush; echo")
	until(t, "the ambush", exists(a.in("stop.waits")))
	met := exists(a.in("stop.met"))
	for i, end := 0, time.Now().Add(longEnough); i < n || !met() && time.Now().Before(end); i++ {
		run(t, a.m, a.ID, ":")
	}
	must.Do(t, os.WriteFile(a.in("stop"), nil, 0o644))
	must.Do(t, awaitFile(a.in("ambush")))
	return strings.TrimSpace(string(must.Get(os.ReadFile(a.in("ambush")))(t)))
}

// TestAttackIPC: chat A tries to get at the objects of B that have a key or a
// name and no file that a mode could guard, and at servers of B by name.
func TestAttackIPC(t *testing.T) {
	m := open(t, attackOptions(t))
	for _, profile := range []string{"default", "web"} {
		t.Run(profile, func(t *testing.T) {
			a, b := inmateOf(t, m, "ipc a "+profile, profile), inmateOf(t, m, "ipc b "+profile, profile)
			ipcCases(t, a, b, profile)
		})
	}
}

func ipcCases(t *testing.T, a, b inmate, profile string) {
	name := "chatd-attack-" + profile
	for _, args := range [][]string{{"shm", "0xc4a7d", "make"}, {"sem", "0xc4a7d", "make"}, {"msg", "0xc4a7d", "make"}} {
		outcomes(t, "B makes "+args[0], b.try(t, args...), "ok")
	}
	b.background(t, "ready", "serve-abstract", name, b.in("ready"))
	for _, c := range []struct {
		name, want string
		do         []string
	}{
		{"System V shared memory", "ENOENT", []string{"shm", "0xc4a7d"}},
		{"System V semaphore", "ENOENT", []string{"sem", "0xc4a7d"}},
		{"System V message queue", "ENOENT", []string{"msg", "0xc4a7d"}},
		{"abstract socket", "ECONNREFUSED", []string{"dial-abstract", name}},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcomes(t, "A", a.try(t, c.do...), c.want)
			outcomes(t, "control: B", b.try(t, c.do...), "ok")
		})
	}
	t.Run("POSIX message queue", func(t *testing.T) {
		// Landlock knows no rule for the file system of queues, so a chat has none at all.
		outcomes(t, "A", a.try(t, "mq", name, "make"), "EACCES")
		outcomes(t, "control: the same uid on the host", asUser(t, a.UID, "mq", name, "make", "unlink"), "ok")
	})
}

// timeout is far beyond every bound that chatd sets itself (30 s for a prompt,
// 20 s for a client of the terminal): what has not come back by then never does.
const timeout = longEnough

// within fails the test when f does not return.
func within(t testing.TB, what string, f func() error) error {
	t.Helper()
	select {
	case err := <-going(f):
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
	edit(opt, name, func(p *chat.Profile) { p.Skeleton = dir })
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
	_, err := os.Lstat(c.Home)
	expect.True(t, os.IsNotExist(err), "%s is left: %v", c.Home, err)
	out, err := exec.Command("pgrep", "-U", fmt.Sprint(c.UID)).Output()
	expect.True(t, err != nil, "processes are left of uid %d: %s", c.UID, out)
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

// TestAttackSupervisorFiles: of the supervisor's descriptors its children get only the three streams
// and those that nsenter needs. The file with the run's result and cgroup.kill are root's open
// files: no process in the session, or on the way there, may hold them.
func TestAttackSupervisorFiles(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "files", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo on; ls -l /proc/self/fd; exec sleep 1000", OpenStdin: true})
	awaitOutput(t, m, c.ID, r.ID, "on")
	all := supervisors(t)
	must.True(t, len(all) == 1, "supervisors: %v", all)
	for _, nsenter := range childrenOf(t, all[0]) {
		dir := fmt.Sprintf("/proc/%d/fd", nsenter)
		files := must.Get(os.ReadDir(dir))(t)
		kinds := map[string]int{}
		for _, f := range files {
			to := must.Get(os.Readlink(filepath.Join(dir, f.Name())))(t)
			kind, _, _ := strings.Cut(to, ":")
			if kinds[kind]++; strings.HasPrefix(to, "/") && kind != "/memfd" && !strings.HasSuffix(to, "/"+r.ID+"/stdin") {
				t.Errorf("nsenter holds %s", to)
			}
			if n, err := strconv.Atoi(f.Name()); err != nil || n > 11 {
				t.Errorf("nsenter holds descriptor %s, %s, which it was not told of", f.Name(), to)
			}
		}
		// Its output, its errors, and what chatd-shim reports to.
		expect.True(t, kinds["pipe"] == 3, "nsenter holds %v", kinds)
	}
}

// childrenOf are the children of a process.
func childrenOf(t testing.TB, pid int) (all []int) {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))(t)
	for _, f := range strings.Fields(string(text)) {
		var n int
		must.Get(fmt.Sscan(f, &n))(t)
		all = append(all, n)
	}
	return all
}

// TestAttackBombsInTheBackground: while the chat forks without end, and then while it is out of
// memory again and again, background runs are begun: their supervisors are in its limits for a
// moment. Each says within its time that it began or why not; what began is not lost by what
// happens then; of what did not, nothing is left.
func TestAttackBombsInTheBackground(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a := inmateOf(t, m, "background bombs", "default")
	bombs := startRun(t, m, a.ID, chat.RunSpec{Argv: []string{a.program, "bombs"}, Timeout: chat.MaxTimeout})
	awaitBombs(t, a)
	beginMany(t, m, a.ID)
	must.Do(t, within(t, "the end of the bombs", func() error { return m.EndRun(operator(t.Context()), a.ID, bombs.ID) }))
	a.typeLine(t, "until test -e ~/enough; do head -c 400M /dev/zero | tail >/dev/null; done")
	awaitBombs(t, a)
	began := beginMany(t, m, a.ID)
	must.Do(t, os.WriteFile(a.in("enough"), nil, 0o644))
	for _, r := range began {
		if got := awaitRun(t, m, a.ID, r.ID); got.State == chat.RunLost {
			t.Errorf("%+v", got)
		}
	}
	if left := runLeaves(opt); len(left) > 0 || len(supervisors(t)) > 0 {
		t.Errorf("left: %v, %v", left, supervisors(t))
	}
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "exit 7"})
	got := awaitRun(t, m, a.ID, r.ID)
	expect.True(t, got.Result.Exit == 7, "afterwards: %+v", got.Result)
}

// beginMany begins short runs, and returns those that began.
func beginMany(t *testing.T, m *manager, id chat.ID) (began []chat.Run) {
	t.Helper()
	refused := map[string]int{}
	for range 24 {
		err := within(t, "a start", func() error {
			r, err := m.StartRun(operator(t.Context()), id, chat.RunSpec{Command: "exit 7", Timeout: chat.Duration(10 * time.Second)})
			if err == nil {
				began = append(began, r)
			}
			return err
		})
		if err != nil {
			refused[err.Error()[:min(len(err.Error()), 40)]]++
		}
	}
	t.Logf("%d began; refused: %v", len(began), refused)
	return began
}

// TestAttackKilledStarts: chatd is killed again and again while background runs begin and
// end. What was answered is there afterwards, whatever the moment; what was not leaves no process,
// no leaf and no file.
func TestAttackKilledStarts(t *testing.T) {
	opt := attackOptions(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "killed"}))(t)
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		began := startsUntilKilled(t, d, c.ID, time.Duration(20+rand.IntN(150))*time.Millisecond)
		d = startDaemon(t, opt, "")
		list := must.Get(d.Runs(t.Context(), c.ID))(t)
		known := map[string]chat.Run{}
		for _, r := range list.Runs {
			known[r.ID] = r
		}
		for _, id := range began {
			_, ok := known[id]
			expect.True(t, ok, "round %d: run %s, which was answered, is not there", round, id)
		}
		for _, r := range list.Runs {
			if r.State == chat.RunRunning {
				must.Do(t, d.EndRun(t.Context(), c.ID, r.ID))
			}
			got := must.Get(d.ShowRun(t.Context(), c.ID, r.ID))(t)
			if got.State == chat.RunLost && slices.Contains(began, r.ID) {
				t.Errorf("round %d: how run %s ended is lost", round, r.ID)
			}
		}
		nothingRuns(t, opt, c.ID, known)
	}
}

// startsUntilKilled starts runs from many sides until the daemon is killed, and returns those that
// it answered.
func startsUntilKilled(t *testing.T, d *daemon, id chat.ID, after time.Duration) (began []string) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := n; ; i++ {
				spec := chat.RunSpec{Command: []string{"true", "echo on; exec sleep 1000", "exit 7"}[i%3], OpenStdin: i%2 == 0, Timeout: chat.Duration(time.Minute)}
				r, err := d.StartRun(t.Context(), id, spec)
				if err != nil {
					return
				}
				mu.Lock()
				began = append(began, r.ID)
				mu.Unlock()
			}
		})
	}
	time.Sleep(after)
	d.kill()
	all.Wait()
	return began
}

// nothingRuns wants no supervisor, no leaf cgroup, and only the files of known runs.
func nothingRuns(t *testing.T, opt provision.Options, id chat.ID, known map[string]chat.Run) {
	t.Helper()
	left := func() string { return fmt.Sprint(supervisors(t), runLeaves(opt)) }
	if !comes(func() bool { return left() == "[] []" }) {
		t.Fatalf("supervisors and leaves are left: %s", left())
	}
	dirs, err := os.ReadDir(filepath.Join(opt.Run, "runs", string(id)))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, ok := known[dir.Name()]; !ok {
			t.Errorf("the files of run %s are left, which is not known", dir.Name())
		}
	}
}
