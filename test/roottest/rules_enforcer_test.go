package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/enforcer"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ruledConfig is a config for a daemon with the profile ruled, whose file of rules denies .env.
func ruledConfig(t *testing.T) (opt provision.Options, config, rules string) {
	t.Helper()
	opt = options(t)
	rules = filepath.Join(filepath.Dir(opt.State), "rules.yaml")
	writeFile(t, rules, "access: {useDefaults: false, deny: ['**/.env']}", 0o600)
	config = configFile(t, opt, "profiles: {ruled: {access_file: "+rules+", commands: ['*']}}\n")
	return opt, config, rules
}

// TestRulesDaemon: a chatd that is killed while a chat tries leaves its rules up; the next
// one reads the file again at SIGHUP, keeps the old rules where the new are bad, and says so.
func TestRulesDaemon(t *testing.T) {
	opt, config, rules := ruledConfig(t)
	d := startDaemonOf(t, opt, config, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "daemon", Profile: "ruled"})
	must.Do(t, err)
	putDir(t, c, "loop")
	must.Do(t, d.Input(t.Context(), c.ID, chat.Input{Text: `while :; do sleep 0.02; cat loop/.env >> loop/out 2>> loop/err; date >> loop/ticks; done &`, Enter: true}))
	ticks(t, c, 3)
	d.kill()
	putFile(t, c, "loop/.env", secret)
	ticks(t, c, 10)
	d = startDaemonOf(t, opt, config, "")
	ticks(t, c, 10)
	out, err := os.ReadFile(filepath.Join(c.Home, "loop/out"))
	expect.True(t, err == nil && !strings.Contains(string(out), secret),
		"with chatd killed the chat read %q, %v", out, err)
	cat := func(name string) string { // by a script: the guard reads commands
		putFile(t, c, "try.sh", "cat "+name)
		r := must.Get(d.Run(t.Context(), c.ID, chat.RunSpec{Command: "sh try.sh"}))(t)
		return r.Stdout + r.Stderr
	}
	reload := func(text, want string) {
		must.Do(t, os.WriteFile(rules, []byte(text), 0o600))
		d.hup(t, want)
	}
	putFile(t, c, "plain", secret)
	reload("access: {deny: 7}", "reload failed; rules and guard unchanged")
	if got := cat("loop/.env plain"); !strings.Contains(got, "ermission") && !strings.Contains(got, "not permitted") {
		t.Errorf("after a bad file: %s", got)
	}
	reload("access: {useDefaults: false, deny: [plain]}", "the file rules were read again")
	expect.True(t, len(auditLines(t, opt, `"rules"`)) > 0, "the new rules are not in the audit log")
	got := cat("plain")
	expect.True(t, !strings.Contains(got, secret), "the new rule does not hold: %s", got)
	got = cat("loop/.env")
	expect.True(t, strings.Contains(got, secret), "the old rule holds still: %s", got)
	if h, err := d.Host(t.Context()); err != nil || strings.Contains(strings.Join(h.Findings, "\n"), "file rules") {
		t.Errorf("findings after good rules: %q, %v", h.Findings, err)
	}
}

// TestRulesEnforcerGone: with both processes of the enforcer ended simultaneously no denied open
// passes, of a file that has a mount or of one that was made since; chatd restarts the enforcer,
// which knows what the first knew and answers what waited.
func TestRulesEnforcerGone(t *testing.T) {
	opt := ruledOptions(t, laterRules)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := ruled(t, m, "gone", ".env")
	putFile(t, c, "moved/.env", secret)
	refused(t, m, c, "mv moved/.env moved/plain; cat moved/plain")
	for _, again := range []bool{false, true} {
		if again { // the next chatd holds the groups, too
			must.Do(t, m.Close())
			m = open(t, opt)
		}
		before := enforcersOf(opt)
		groupsHeld(t, opt)
		endEnforcer(t, opt)
		putFile(t, c, "x/.env", secret)
		refused(t, m, c, "cat x/.env")
		refused(t, m, c, "cat .env")
		refused(t, m, c, "cat moved/plain")
		expect.Equal(t, run(t, m, c.ID, "echo free > free; cat free").Stdout, "free\n",
			"what no rule is about")
		until(t, "the layer view is on again", func() bool {
			return viewOf(t, m, c).State == chat.LayerOn
		})
		probe := viewOf(t, m, c).Probe
		expect.True(t, strings.Contains(probe, " closed, ") && strings.Contains(probe, "fanotify"),
			"with an enforcer again the view has %q", probe)
		for _, pid := range enforcersOf(opt) {
			expect.True(t, !slices.Contains(before, pid),
				"process %s of the enforcer is still there", pid)
		}
	}
}

// TestRulesEnforcerCannotReturn: if no other enforcer can start, opens wait until a reconcile ends
// the session; the layer reports that opens are not checked.
func TestRulesEnforcerCannotReturn(t *testing.T) {
	opt := ruledOptions(t, laterRules)
	enforcer := filepath.Join(filepath.Dir(opt.State), "chatd-enforce")
	program := must.Get(os.ReadFile(opt.Enforce))(t)
	must.Do(t, os.WriteFile(enforcer, program, 0o755))
	opt.Enforce = enforcer
	m := open(t, opt)
	c := ruled(t, m, "lost")
	// The script starts no program and opens one file: anything else that it opened would wait, too.
	putFile(t, c, "try.sh",
		`exec 8>>out; echo begun >&8; read x <go; read -r x <.env; echo "$x" >&8; echo over >&8`)
	putFile(t, c, "out", "")
	goOn := filepath.Join(c.Home, "go")
	must.Do(t, errors.Join(unix.Mkfifo(goOn, 0o600), os.Chown(goOn, int(c.UID), int(c.UID))))
	startRun(t, m, c.ID, chat.RunSpec{Command: "sh try.sh"})
	pipe, err := os.OpenFile(goOn, os.O_WRONLY, 0) // returns when the script has opened it
	must.Do(t, err)
	defer pipe.Close()
	groupsHeld(t, opt)
	must.Do(t, os.Remove(enforcer))
	endEnforcer(t, opt)
	putFile(t, c, ".env", secret)
	must.Get(pipe.WriteString("\n"))(t)
	out := ""
	for i := 0; i < 300 && !strings.Contains(out, "over"); i++ {
		time.Sleep(10 * time.Millisecond)
		out = string(must.Get(os.ReadFile(filepath.Join(c.Home, "out")))(t))
	}
	expect.Equal(t, out, "begun\n", "without an enforcer the chat read")
	l := viewOf(t, m, c)
	expect.True(t, l.State == chat.LayerWeaker && strings.Contains(l.Probe, "nobody checks files made later"),
		"without an enforcer the view is %+v", l)
	m.Reconcile(operator(t.Context()))
	got, err := m.Get(operator(t.Context()), c.ID)
	expect.True(t, err == nil && !got.Awake, "the session goes on: %+v, %v", got, err)
}

// groupsHeld waits until chatd holds the groups of the enforcer.
func groupsHeld(t *testing.T, opt provision.Options) {
	t.Helper()
	until(t, "the enforcer's groups are held", exists(filepath.Join(opt.Run, "keeper", "groups")))
}

// viewOf is the layer view of a chat.
func viewOf(t *testing.T, m *manager, c chat.Chat) chat.Layer {
	t.Helper()
	got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
	for _, l := range got.Layers {
		if l.Name == chat.LayerView {
			return l
		}
	}
	t.Fatal("no layer view")
	return chat.Layer{}
}

// TestDoctorWithoutEnforcer: doctor exits 69, and says why, while a chat's rules have no enforcer,
// and none can be started.
func TestDoctorWithoutEnforcer(t *testing.T) {
	opt, config, _ := ruledConfig(t)
	c := startDaemonOf(t, opt, config, "")
	_, _, err := c.Create(operator(t.Context()), chat.Spec{ExternalID: "ruled", Profile: "ruled", Awake: new(bool)})
	must.Do(t, err)
	doctor := func() (string, int) {
		cmd := exec.Command(programs.chatd, "--socket", filepath.Join(opt.Run, "chatd.sock"), "doctor")
		out, err := cmd.CombinedOutput()
		if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := doctor(); code != 0 || strings.Contains(out, "broken:") {
		t.Errorf("with an enforcer: exit %d\n%s", code, out)
	}
	endEnforcer(t, opt)
	dir := filepath.Join(opt.Run, "keeper")
	must.Do(t, errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))) // no other can begin
	defer os.Remove(dir)
	out, code := doctor()
	if code != 69 || !strings.Contains(out, "broken: ") || !strings.Contains(out, "cannot use the file rules of profile ruled") {
		t.Errorf("without an enforcer: exit %d\n%s", code, out)
	}
}

// unmountIn takes a mount away in the mount namespace of a process.
func unmountIn(pid, place string) error {
	ns, err := os.Open("/proc/" + pid + "/ns/mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with it
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread() // the first thread would not end: another one, while this is held
			done <- unmountIn(pid, place)
			return
		}
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = unix.Unmount(place, unix.MNT_DETACH)
		}
		if err != nil {
			err = fmt.Errorf("cannot unmount %s: %w", place, err)
		}
		done <- err
	}()
	return <-done
}

// TestRulesWithoutEnforcer: what file rules close outside the home stays closed in a session whose
// enforcer is stopped and whose mounts are gone: Landlock grants nothing there. Without Landlock it
// is read. A session starts even if rules close a whole exposure, and explain and layers report
// which wall enforces what.
func TestRulesWithoutEnforcer(t *testing.T) {
	for name, without := range map[string]bool{"Landlock": false, "no Landlock": true} {
		t.Run(name, func(t *testing.T) {
			shared, whole := srvDir(t), srvDir(t) // not below it: a grant is for a directory, whatever it is called
			for _, file := range []string{shared + "/secret/f", shared + "/open/f", whole + "/f"} {
				writeFile(t, file, secret, 0o644)
			}
			opt := ruledOptions(t, `access: {useDefaults: false, deny: [/data/secret, /whole, "~/keys"]}`)
			if without {
				opt = withoutLandlock(opt)
			}
			expose(opt, "ruled", shared, "/data")
			expose(opt, "ruled", whole, "/whole")
			m := must.Get(openManager(t.Context(), opt))(t)
			c := ruled(t, m, "left-out", "keys/k")
			denied := []string{"/data/secret/f", "/whole/f"}
			for _, f := range denied {
				refused(t, m, c, "cat %s", f)
			}
			if got := tells(t, m, c, "ls /data; cat /data/open/f"); !strings.Contains(got, "secret\n") || !strings.HasSuffix(got, secret) {
				t.Errorf("beside: %q", got)
			}
			e, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Op: "read", Path: denied[0]})
			if err != nil || slices.Contains(e.KeptBy, "landlock") == without || !slices.Contains(e.KeptBy, "chatd-enforce") {
				t.Errorf("explain: kept by %q, %v", e.KeptBy, err)
			}
			e, err = m.Explain(operator(t.Context()), c.ID, chat.Question{Op: "read", Path: "~/keys/k"})
			expect.True(t, err == nil && slices.Equal(e.KeptBy, []string{"chatd-enforce"}), "explain in the home: kept by %q, %v", e.KeptBy, err)
			got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
			shown := slices.ContainsFunc(got.Layers, func(l chat.Layer) bool {
				return l.Name == chat.LayerLandlock && strings.Contains(l.Probe, "at 2 denied paths")
			})
			expect.Equal(t, shown, !without, "layers tell of it")
			goOn := waitingRun(t, m, c, "cat /data/secret/f /whole/f")
			initPID := sessionInit(t, c)
			must.Do(t, m.Close()) // it would bring the enforcer back
			enforcers := enforcersOf(opt)
			endEnforcer(t, opt)
			for _, pid := range enforcers {
				awaitClosed(t, pid)
			}
			for _, place := range []string{"/data/secret", "/whole"} {
				must.Do(t, unmountIn(initPID, place))
			}
			out := goOn()
			expect.Equal(t, strings.Count(out, secret), map[bool]int{true: len(denied)}[without],
				"with nobody but %s the chat read %q", name, out)
			open(t, opt) // which reaps it
		})
	}
}

// awaitClosed waits until a killed process has closed its files: an open about which a group of
// fanotify(7) is asked while its last descriptor closes may wait for ever (seen on Linux 6.18).
func awaitClosed(t *testing.T, pid string) {
	t.Helper()
	until(t, "process "+pid+" closes its files", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		tasks, _ := os.ReadDir("/proc/" + pid + "/task")
		return err != nil || len(tasks) == 1 && strings.Contains(string(stat), ") Z ")
	})
}

// waitingRun starts a background run, which does the command when it is told to. What it returns
// tells it, and returns what the command printed.
func waitingRun(t *testing.T, m *manager, c chat.Chat, command string) (goOn func() string) {
	t.Helper()
	fifo, out := filepath.Join(c.Home, "go"), filepath.Join(c.Home, "out")
	putFile(t, c, "out", "")
	putFile(t, c, "waits.sh", "read x <go; "+command+" >>out 2>&1; echo over >>out")
	must.Do(t, errors.Join(unix.Mkfifo(fifo, 0o600), os.Chown(fifo, int(c.UID), int(c.UID))))
	startRun(t, m, c.ID, chat.RunSpec{Command: "sh waits.sh"})
	pipe, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the run has opened it
	must.Do(t, err)
	return func() (printed string) {
		t.Helper()
		must.Do(t, errors.Join(expect.Err(pipe.WriteString("\n")), pipe.Close()))
		until(t, "the run has tried", func() bool {
			printed = string(must.Get(os.ReadFile(out))(t))
			return strings.HasSuffix(printed, "over\n")
		})
		return printed
	}
}

// TestRulesMaskedByBubblewrap: what file rules close in a tree that no session can write to, and is
// there when a session begins, is masked by bubblewrap: the plan has the masks, explain and layers tell of them, and a reload opens what
// lies under one and closes it again, after which the enforcer alone keeps it. A link gets no mask.
func TestRulesMaskedByBubblewrap(t *testing.T) {
	const deny = `access: {useDefaults: false, deny: [/data/keys, /data/note, /data/link, /data/later]}`
	opt := withoutLandlock(ruledOptions(t, deny))
	data := srvDir(t)
	expose(opt, "ruled", data, "/data")
	writeFile(t, data+"/keys/k", secret, 0o644)
	writeFile(t, data+"/note", secret, 0o644)
	must.Do(t, os.Symlink("other", data+"/link"))
	m := must.Get(openManager(t.Context(), opt))(t)
	c := ruled(t, m, "masks")
	ctx := operator(t.Context())
	masks := func() (all []string) {
		plan := must.Get(m.Plan(ctx, c.ID))(t)
		for _, mount := range plan.Mounts {
			if mount.By == "file rules" {
				all = append(all, strings.TrimPrefix(mount.Target, "/data"))
			}
		}
		return all
	}
	got := masks()
	expect.True(t, slices.Equal(got, []string{"/keys", "/note"}), "the plan masks %q", got)
	keptBy := func(want ...string) {
		t.Helper()
		e, err := m.Explain(ctx, c.ID, chat.Question{Op: "read", Path: "/data/keys/k"})
		expect.True(t, err == nil && slices.Equal(e.KeptBy, want),
			"kept by %q, %v, want %q", e.KeptBy, err, want)
	}
	tellsOf := func(n int) {
		t.Helper()
		got := must.Get(m.Get(ctx, c.ID))(t)
		if !slices.ContainsFunc(got.Layers, func(l chat.Layer) bool {
			return l.Name == chat.LayerView && strings.Contains(l.Probe, fmt.Sprintf("masks %d denied paths", n))
		}) {
			t.Errorf("layers do not tell of %d masks: %+v", n, got.Layers)
		}
	}
	refused(t, m, c, "cat /data/keys/k")
	refused(t, m, c, "cat /data/note")
	keptBy("chatd-enforce", "bubblewrap")
	tellsOf(2)
	must.Do(t, reloadRules(t, m, `access: {useDefaults: false, deny: [/data/note]}`))
	expect.Equal(t, tells(t, m, c, "cat /data/keys/k"), secret, "what a reload opened says")
	refused(t, m, c, "cat /data/note")
	tellsOf(1)
	must.Do(t, reloadRules(t, m, deny))
	refused(t, m, c, "cat /data/keys/k")
	keptBy("chatd-enforce")
	must.Do(t, m.Close())
	m = open(t, opt)
	refused(t, m, c, "cat /data/note")
	tellsOf(1)
	must.Get(m.Sleep(ctx, c.ID))(t)
	keptBy("chatd-enforce", "bubblewrap")
	got = masks()
	expect.True(t, slices.Equal(got, []string{"/keys", "/note"}), "the next plan masks %q", got)
}

// workerOf is the enforcer's worker, once there is another than was.
func workerOf(t *testing.T, opt provision.Options, was int) (pid int) {
	t.Helper()
	until(t, "a worker", func() bool {
		args := "^[^ ]*chatd-enforce --dir " + opt.Run + "/keeper --worker"
		out, _ := exec.Command("pgrep", "-f", args).Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return pid != 0 && pid != was
	})
	return pid
}

// masksAt are the mounts of bubblewrap's masks in the chat's session, as its mountinfo has them.
func masksAt(t *testing.T, initPID string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(string(must.Get(os.ReadFile("/proc/" + initPID + "/mountinfo"))(t))) {
		if strings.Contains(line, "/masks/closed-") {
			lines = append(lines, line)
		}
	}
	return lines
}

// killAtMount kills the worker when the first mount of a session comes or goes. It reads them
// again and again: poll(2) of mountinfo tells of no umount on some kernels.
func killAtMount(initPID, before string, worker int) error {
	for end := time.Now().Add(longEnough); time.Now().Before(end); { // at once: a reload is soon done
		now, err := os.ReadFile("/proc/" + initPID + "/mountinfo")
		if err != nil || string(now) != before {
			return errors.Join(err, unix.Kill(worker, unix.SIGKILL))
		}
	}
	return errors.New("no mount came or went")
}

// TestRulesWorkerKilled: in a session that began with bubblewrap's masks every denied path stays
// denied while the enforcer's worker is killed and another takes the session up, also when that
// happens in the midst of a reload. The masks stay the same mounts, and reloads open and close
// what they lie over as before.
func TestRulesWorkerKilled(t *testing.T) {
	shared := srvDir(t)
	writeFile(t, shared+"/secret/f", secret, 0o644)
	const count = 50 // directories that a reload opens or closes, one mount after the other
	opened := `access: {useDefaults: false, deny: ["~/note", /data/secret, "**/.env"]}`
	closed := strings.Replace(opened, "[", `["~/keys", `, 1)
	for i := range count {
		writeFile(t, fmt.Sprintf("%s/many/%d/k", shared, i), secret, 0o644)
		closed = strings.Replace(closed, "[", fmt.Sprintf(`["/data/many/%d", `, i), 1)
	}
	opt := withoutLandlock(ruledOptions(t, closed))
	expose(opt, "ruled", shared, "/data")
	m := open(t, opt)
	c := ruled(t, m, "worker", "keys/k", "note", "w/.env", "loop/later/.env")
	denied := []string{"note", "/data/secret/f", "w/.env", "loop/later/.env"}
	loop := "while :; do sleep 0.02; cat " + strings.Join(denied, " ") + " loop/n*/.env >> loop/out" +
		" 2>> loop/err; cat keys/k >> loop/keys 2>> loop/err; date >> loop/ticks; done &"
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Enter: true, Text: loop}))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(c.Home, "loop", name))
		must.Do(t, ignoreGone(err))
		return string(b)
	}
	initPID := sessionInit(t, c)
	masks := masksAt(t, initPID)
	if want := count + 1; len(masks) != want {
		t.Fatalf("bubblewrap masks %d paths, want %d: %q", len(masks), want, masks)
	}
	worker := workerOf(t, opt, 0)
	for i := range 4 {
		must.Do(t, unix.Kill(worker, unix.SIGKILL))
		putFile(t, c, fmt.Sprintf("loop/n%d/.env", i), secret)
		worker = workerOf(t, opt, worker)
		ticks(t, c, 3)
		refused(t, m, c, "cat %s keys/k loop/n*/.env", strings.Join(denied, " "))
		got := masksAt(t, initPID)
		expect.True(t, slices.Equal(got, masks), "after kill %d the masks are %q, were %q", i, got, masks)
	}
	expect.Equal(t, (read("out") + read("keys")), "", "while workers were killed the chat read")
	for i := range 6 {
		ended := make(chan error, 1)
		before := must.Get(os.ReadFile("/proc/" + initPID + "/mountinfo"))(t)
		go func() { ended <- killAtMount(initPID, string(before), worker) }()
		must.Do(t, reloadRules(t, m, []string{opened, closed}[i%2]))
		must.Do(t, <-ended)
		worker = workerOf(t, opt, worker)
		refused(t, m, c, "cat %s", strings.Join(denied, " "))
		want := strings.Repeat(secret, []int{count + 1, 0}[i%2])
		expect.Equal(t, tells(t, m, c, "cat keys/k /data/many/*/k 2>/dev/null"), want,
			"after reload %d", i)
	}
	expect.True(t, initPID == sessionInit(t, c), "the session is another")
	expect.Equal(t, read("out"), "", "the chat read")
}

// TestEnforcerEnds: chatd-enforce ends on SIGTERM, which systemd sends, and does not wait to be
// killed.
func TestEnforcerEnds(t *testing.T) {
	opt := options(t)
	dir := filepath.Join(opt.Run, "keeper")
	keep := exec.Command(programs.enforce, "--dir", dir)
	must.Do(t, keep.Start())
	ended := going(func() error { return keep.Wait() })
	until(t, "the enforcer answers", func() bool {
		return enforcer.New(enforcer.Options{Dir: dir}).Keeps(t.Context(), enforcer.Session{})
	})
	must.Do(t, keep.Process.Signal(syscall.SIGTERM))
	select {
	case <-ended:
	case <-time.After(longEnough):
		_ = keep.Process.Kill()
		t.Error("the enforcer goes on after SIGTERM")
	}
}
