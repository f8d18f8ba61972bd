package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ruledConfig is a config for a daemon with the profile ruled, whose file of rules denies .env.
func ruledConfig(t *testing.T) (opt provision.Options, config, rules string) {
	t.Helper()
	opt = ruledOptions(t, "access: {useDefaults: false}")
	config, rules = configFile(t, opt), filepath.Join(filepath.Dir(opt.State), "rules.yaml")
	f, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = fmt.Fprintf(f, "profiles:\n  ruled:\n    access_file: %s\n    commands: ['*']\n", rules)
	must.Do(t, errors.Join(err, f.Close(), os.WriteFile(rules, []byte("access: {useDefaults: false, deny: ['**/.env']}"), 0o600)))
	return opt, config, rules
}

// TestRulesDaemon: a chatd that is killed while a chat tries leaves its rules up; the next
// one reads the file again at SIGHUP, keeps the old rules where the new are bad, and says so.
func TestRulesDaemon(t *testing.T) {
	leaveOrphansToInit(t)
	opt, config, rules := ruledConfig(t)
	d := startDaemonOn(t, config)
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "daemon", Profile: "ruled"})
	must.Do(t, err)
	putDir(t, c, "loop")
	must.Do(t, d.Input(t.Context(), c.ID, chat.Input{Text: `while :; do sleep 0.02; cat loop/.env >> loop/out 2>> loop/err; date >> loop/ticks; done &`, Enter: true}))
	ticks(t, c, 3)
	d.kill()
	putFile(t, c, "loop/.env", secret)
	ticks(t, c, 10)
	d = startDaemonOn(t, config)
	ticks(t, c, 10)
	out, err := os.ReadFile(filepath.Join(c.Home, "loop/out"))
	expect.True(t, err == nil && !strings.Contains(string(out), secret),
		"with chatd killed the chat read %q, %v", out, err)
	t.Cleanup(func() { _ = d.Reap(operator(context.Background()), c.ID) })
	cat := func(name string) string { // by a script: the guard reads commands
		putFile(t, c, "try.sh", "cat "+name)
		r := must.Get(d.Run(t.Context(), c.ID, chat.RunSpec{Command: "sh try.sh"}))(t)
		return r.Stdout + r.Stderr
	}
	reload := func(text, want string) chat.Host {
		must.Do(t, os.WriteFile(rules, []byte(text), 0o600))
		must.Do(t, d.cmd.Process.Signal(syscall.SIGHUP))
		var h chat.Host
		until(t, fmt.Sprintf("after SIGHUP somebody says %q", want), func() bool {
			h, err = d.Host(t.Context())
			must.Do(t, err)
			b, _ := os.ReadFile(d.log)
			return strings.Contains(string(b)+strings.Join(h.Findings, "\n"), want)
		})
		return h
	}
	putFile(t, c, "plain", secret)
	reload("access: {deny: 7}", "reload failed; rules and guard unchanged")
	if got := cat("loop/.env plain"); !strings.Contains(got, "ermission") && !strings.Contains(got, "not permitted") {
		t.Errorf("after a bad file: %s", got)
	}
	reload("access: {useDefaults: false, deny: [plain]}", "the file rules were read again")
	if b, err := os.ReadFile(filepath.Join(opt.State, "audit.jsonl")); err != nil || strings.Count(string(b), `"rules"`) == 0 {
		t.Errorf("the new rules are not in the audit log: %v", err)
	}
	if got := cat("plain"); strings.Contains(got, secret) {
		t.Errorf("the new rule does not hold: %s", got)
	}
	if got := cat("loop/.env"); !strings.Contains(got, secret) {
		t.Errorf("the old rule holds still: %s", got)
	}
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
	c := sleeper(t, m, "gone")
	putFile(t, c, ".env", secret)
	wake(t, m, c.ID)
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
	c := sleeper(t, m, "lost")
	wake(t, m, c.ID)
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
		b := must.Get(os.ReadFile(filepath.Join(c.Home, "out")))(t)
		out = string(b)
	}
	expect.Equal(t, out, "begun\n", "without an enforcer the chat read")
	l := viewOf(t, m, c)
	if l.State != chat.LayerWeaker || !strings.Contains(l.Probe, "nobody checks files made later") {
		t.Errorf("without an enforcer the view is %+v", l)
	}
	m.Reconcile(operator(t.Context()))
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || got.Awake {
		t.Errorf("the session goes on: %+v, %v", got, err)
	}
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
	leaveOrphansToInit(t)
	opt, config, _ := ruledConfig(t)
	c := startDaemonOn(t, config)
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
