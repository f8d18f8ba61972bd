package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// accountless are options for a host on which no program reads the account records.
func accountless(t *testing.T) provision.Options {
	opt := options(t)
	opt.Account, opt.Userdb = "userdb", "/srv/nobody-reads-this"
	t.Cleanup(func() { _ = os.RemoveAll(opt.Userdb) })
	return opt
}

// TestRequiredLayers: a host that lacks a wall is refused, with the fix.
func TestRequiredLayers(t *testing.T) {
	_, err := openManager(t.Context(), accountless(t))
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "account:") || !strings.Contains(err.Error(), "libnss-systemd") {
		t.Fatalf("a host without accounts: %v, want ErrUnsupported with the layer and the fix", err)
	}
}

// TestRunsAreProbed: walls that hold for a session and not for what chatd brings into
// it show, too. Here nsenter(1) fails, or forgets one namespace.
func TestRunsAreProbed(t *testing.T) {
	opt := options(t)
	opt.AllowMissing = []chat.LayerName{chat.LayerNetwork} // before Landlock's ABI 6 it is off, and not weaker
	opt.Profiles = map[string]chat.Profile{"default": {Name: "default", Limits: chat.DefaultLimits(), Network: chat.NetworkNone}}
	dir := t.TempDir()
	nsenter := func(script string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, "nsenter"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	nsenter("exit 1")
	expect.Says(t, expect.Err(openManager(t.Context(), opt)), chat.ErrUnsupported, "cannot probe a run",
		"without runs")
	nsenter(`for a; do shift; case $a in --net=*) ;; *) set -- "$@" "$a" ;; esac; done; exec /usr/bin/nsenter "$@"`)
	h := must.Get(open(t, opt).Host(operator(t.Context())))(t)
	for _, l := range h.Layers {
		if l.Name == chat.LayerNetwork && (l.State == chat.LayerOn || !strings.Contains(l.Probe, "in a run: ")) {
			t.Errorf("a run in the host's network: layer network is %s: %s", l.State, l.Probe)
		}
	}
}

// TestExcusedAccount: where config excuses the wall, every answer says so.
func TestExcusedAccount(t *testing.T) {
	opt := accountless(t)
	opt.AllowMissing = []chat.LayerName{chat.LayerAccount}
	m := open(t, opt)
	c := create(t, m, "excused", "default")
	offAlone(t, c, chat.LayerAccount)
	h := must.Get(m.Host(operator(t.Context())))(t)
	expect.True(t, len(h.Allowed) == 1 && len(h.Missing) == 0,
		"host: missing %v, allowed %v", h.Missing, h.Allowed)
}

// offAlone fails unless of a chat's layers that one is off, and the others as promised.
func offAlone(t *testing.T, c chat.Chat, off chat.LayerName) {
	t.Helper()
	for _, l := range c.Layers {
		want := promised(t, l.Name)
		if l.Name == off {
			want = chat.LayerOff
		}
		expect.True(t, l.State == want, "layer %s of the chat is %s, want %s: %s", l.Name, l.State, want, l.Probe)
	}
}

// TestExcusedLandlock asks for more than the kernel has: without the excuse no
// session comes up, with it one does, and Landlock shows as off.
func TestExcusedLandlock(t *testing.T) {
	opt := options(t)
	opt.LandlockABI = 60
	_, err := openManager(t.Context(), opt)
	must.True(t, errors.Is(err, chat.ErrUnsupported), "Landlock ABI 60: %v, want ErrUnsupported", err)
	opt.AllowMissing = []chat.LayerName{chat.LayerLandlock}
	m := open(t, opt)
	c := create(t, m, "without landlock", "default")
	offAlone(t, c, chat.LayerLandlock)
}

// TestRollback lets the account step fail, on a directory that cannot be written to: nothing of the
// chat may be left, and its uid is spent. Until then the same create is busy.
func TestRollback(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	must.Do(t, unix.Mount("/etc/userdb", "/etc/userdb", "", unix.MS_BIND, ""))
	// Once: below it is the mount that keeps this test's accounts out of other tests.
	writable := sync.OnceFunc(func() { must.Do(t, unix.Unmount("/etc/userdb", unix.MNT_DETACH)) })
	defer writable()
	must.Do(t, unix.Mount("", "/etc/userdb", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	_, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "failing", Awake: new(false)})
	must.True(t, err != nil && strings.Contains(err.Error(), "at step account"),
		"create on a read-only /etc/userdb: %v, want the failed step", err)
	page := must.Get(m.List(operator(t.Context()), chat.Filter{}))(t)
	expect.True(t, len(page.Chats) == 1 && page.Chats[0].Phase == chat.Reaping,
		"what cannot be removed either must stay to be finished: %+v", page.Chats)
	_, _, err = m.Create(operator(t.Context()), chat.Spec{ExternalID: "failing", Awake: new(false)})
	expect.Is(t, err, chat.ErrBusy, "the same create, while that is not removed")
	writable()
	m.Reconcile(t.Context())
	for _, c := range page.Chats {
		gone(t, opt, c)
	}
	c := asleep(t, m, "failing")
	whole(t, opt, c)
	if len(page.Chats) == 1 && c.UID == page.Chats[0].UID {
		t.Errorf("uid %d was given again", c.UID)
	}
}

// TestRollbackOfWake lets the session fail: the chat stays, asleep and whole.
func TestRollbackOfWake(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := asleep(t, m, "cannot wake")
	shim := filepath.Join(opt.State, "bin", "chatd-shim")
	must.Do(t, os.Rename(shim, shim+".away"))
	expect.Says(t, expect.Err(m.Wake(operator(t.Context()), c.ID)), nil, "chatd-shim",
		"wake without chatd-shim")
	left := pidsOf(c.UID)
	expect.True(t, len(left) == 0, "processes %v are left", left)
	must.Do(t, os.Rename(shim+".away", shim))
	whole(t, opt, c)
	got, err := m.Wake(operator(t.Context()), c.ID)
	expect.True(t, err == nil && got.Awake, "wake once it is back: %+v, %v", got, err)
}

// TestReconcileComesAround breaks an account and waits for the loop to mend it.
func TestReconcileComesAround(t *testing.T) {
	opt := options(t)
	opt.Every = 20 * time.Millisecond
	m := open(t, opt)
	c := asleep(t, m, "mended in passing")
	file := "/etc/userdb/" + c.User + ".user"
	must.Do(t, os.Remove(file))
	until(t, "somebody comes around to mend the account", exists(file))
}

// TestCreateCallsNoIptables covers the programs that change packet rules: a chat
// on a known profile must not need them.
func TestCreateCallsNoIptables(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	for _, name := range []string{"iptables", "iptables-restore", "ip6tables-restore", "nft"} {
		path := must.Get(exec.LookPath(name))(t)
		path = must.Get(filepath.EvalSymlinks(path))(t)
		must.Do(t, unix.Mount("/bin/false", path, "", unix.MS_BIND, ""))
		defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
		must.True(t, exec.Command(name, "--version").Run() != nil,
			"%s still works: this test would show nothing", name)
	}
	c := create(t, m, "no iptables", "web")
	r := run(t, m, c.ID, "true")
	expect.True(t, r.Exit == 0, "%+v", r)
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
}

// TestUsedAt: using a chat moves used_at, looking at it does not.
func TestUsedAt(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "used", "default")
	usedAt := func() time.Time {
		t.Helper()
		return must.Get(m.Get(ctx, c.ID))(t).UsedAt
	}
	for name, look := range map[string]func() error{
		"get":    func() error { return expect.Err(m.Get(ctx, c.ID)) },
		"list":   func() error { return expect.Err(m.List(ctx, chat.Filter{})) },
		"screen": func() error { return expect.Err(m.Screen(ctx, c.ID)) },
		"host":   func() error { return expect.Err(m.Host(ctx)) },
	} {
		before := usedAt()
		must.Do(t, look())
		after := usedAt()
		expect.True(t, after.Equal(before), "%s moved used_at", name)
	}
	for name, use := range map[string]func() error{
		"run":    func() error { return expect.Err(m.Run(ctx, c.ID, chat.RunSpec{Command: "true"})) },
		"input":  func() error { return m.Input(ctx, c.ID, chat.Input{Enter: true}) },
		"create": func() error { _, _, err := m.Create(ctx, chat.Spec{ExternalID: "used"}); return err },
	} {
		before := usedAt()
		must.Do(t, use())
		after := usedAt()
		expect.True(t, after.After(before), "%s did not move used_at", name)
	}
}

// TestMaxAwake bounds sessions, and says so as something to try again.
func TestMaxAwake(t *testing.T) {
	opt := keepAwake(options(t))
	opt.MaxAwake = 1
	m := open(t, opt)
	c := create(t, m, "first", "default")
	_, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "second"})
	expect.True(t, errors.Is(err, chat.ErrBusy), "a second session: %v, want ErrBusy", err)
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	create(t, m, "second", "default")
}

// TestSkeleton fills a new home, links as links, modes without set-id bits.
func TestSkeleton(t *testing.T) {
	opt := options(t)
	skeleton := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(skeleton, "bin"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(skeleton, "bin", "hello"), []byte("#!/bin/sh\necho hello\n"), 0o755))
	must.Do(t, os.Chmod(filepath.Join(skeleton, "bin", "hello"), 0o4755|os.ModeSetuid))
	must.Do(t, os.Symlink("/etc/shadow", filepath.Join(skeleton, "link")))
	edit(opt, "default", func(p *chat.Profile) { p.Skeleton = skeleton })
	m := open(t, opt)
	c := create(t, m, "skeleton", "default")
	r := run(t, m, c.ID, "~/bin/hello; readlink ~/link; cat ~/link; find ~ -perm /6000; find ~ ! -user $(id -u)")
	expect.True(t, r.Stdout == "hello\n/etc/shadow\n", "%+v", r)
	expect.True(t, expect.Err(unix.Open(filepath.Join(skeleton, "gone"), 0, 0)) != nil,
		"the skeleton was changed")
}

// TestAuditTellsAll: intent and outcome of each act, in one chain that holds.
func TestAuditTellsAll(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	c := create(t, m, "audited", "default")
	run(t, m, c.ID, "true")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "secret words"}))
	must.Get(m.Sleep(ctx, c.ID))(t)
	must.Do(t, m.Reap(ctx, c.ID))
	must.Do(t, m.Close())
	audit := auditText(t, opt)
	for _, action := range []string{"create", "wake", "run", "input", "sleep", "reap"} {
		intent := strings.Index(audit, `"action":"`+action+`","outcome":"intent"`)
		done := strings.LastIndex(audit, `"action":"`+action+`","outcome":"done"`)
		expect.True(t, intent >= 0 && done >= intent,
			"%s: intent at %d, done at %d", action, intent, done)
	}
	expect.True(t, !strings.Contains(audit, "secret words"),
		"what was typed stands in the audit log")
}

// TestDefaultLimits reads the limits of a real chat in the kernel's own files.
func TestDefaultLimits(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "limited", "default")
	want := map[string]string{ // file: value, of cgroup v2 and of v1
		"memory.max": "268435456", "memory.swap.max": "0", "pids.max": "200", "cpu.max": "250000 1000000",
		"memory.limit_in_bytes": "268435456", "memory.memsw.limit_in_bytes": "268435456",
		"cpu.cfs_quota_us": "250000", "cpu.cfs_period_us": "1000000",
	}
	seen := map[string]bool{}
	for file, value := range want {
		path, is := kernelLimit(t, c.ID, file, "")
		seen[file] = path != ""
		expect.True(t, path == "" || is == value, "%s is %q, want %s", path, is, value)
	}
	if !seen["pids.max"] || !seen["memory.max"] && !seen["memory.limit_in_bytes"] || !seen["cpu.max"] && !seen["cpu.cfs_quota_us"] {
		t.Errorf("limits found: %v", seen)
	}
	r := run(t, m, c.ID, "ulimit -n; ulimit -c; ulimit -l; df --output=size -B1 /dev/shm | tail -1 | tr -d ' '")
	expect.True(t, r.Stdout == "1024\n0\n64\n16777216\n", "limits of a process: %+v", r)
}

// TestWallBeforeAccount: a uid of the range that no chat has is walled already.
func TestWallBeforeAccount(t *testing.T) {
	opt := options(t)
	open(t, opt)
	l := must.Get(net.Listen("tcp4", "127.0.0.1:0"))(t)
	defer l.Close()
	dial := func(uid uint32) error {
		return exec.Command("setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups",
			"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+fmt.Sprint(l.Addr().(*net.TCPAddr).Port)).Run()
	}
	for _, uid := range []uint32{opt.UIDs.Low, opt.UIDs.Low + 12345, opt.UIDs.High - 1} {
		expect.True(t, dial(uid) != nil, "uid %d reached a server of root before it was anybody's", uid)
	}
	expect.Is(t, dial(opt.UIDs.Low-1), nil, "a uid outside the range is walled too")
}

// TestDemo runs the demonstration, whole and with a wall broken.
func TestDemo(t *testing.T) {
	leaveOrphansToInit(t)
	if out, err := exec.Command(programs.demo).CombinedOutput(); err != nil || !strings.Contains(string(out), "everything held") {
		t.Errorf("the demonstration: %v\n%s", err, out)
	}
	out, err := exec.Command(programs.demo, "--break").CombinedOutput()
	var exit *exec.ExitError
	expect.True(t, errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(string(out), "BROKEN"),
		"the demonstration with open homes: %v, want 1\n%s", err, out)
}

// TestDoctorFails: a doctor that cannot go on leaves no cgroup, directory or account.
func TestDoctorFails(t *testing.T) {
	opt := options(t)
	opt.Shim += "-gone"
	_, err := provision.Doctor(t.Context(), opt)
	must.True(t, errors.Is(err, os.ErrNotExist), "without chatd-shim: %v", err)
	made := must.Get(filepath.Glob("/sys/fs/cgroup/*/" + opt.Cgroup + "-doctor"))(t)
	more := must.Get(filepath.Glob("/sys/fs/cgroup/" + opt.Cgroup + "-doctor"))(t)
	left := append(made, more...)
	expect.True(t, len(left) == 0, "left %v", left)
}

// TestDoctorAlone tries a host without a daemon, by the real program.
func TestDoctorAlone(t *testing.T) {
	if !onHost() { // As on Debian, whose early userspace mounts /run so.
		must.Do(t, unix.Mount("run", "/run", "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"))
		defer func() { must.Do(t, unix.Unmount("/run", unix.MNT_DETACH)) }()
	}
	cmd := exec.Command(programs.chatd, "--json", "--socket", "/srv/none.sock", "doctor")
	cmd.Env = append(os.Environ(), "CHATD_BACKEND="+backend())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	must.True(t, err == nil, "%v: %s\n%s", err, said.String(), out)
	var h chat.Host
	must.Do(t, json.Unmarshal(out, &h))
	for _, l := range h.Layers {
		if want := promised(t, l.Name); l.State != want {
			t.Errorf("layer %s is %s, want %s: %s", l.Name, l.State, want, l.Probe)
		}
	}
	expect.True(t, len(h.Layers) == len(chat.LayerNames()) && len(h.Missing) == 0,
		"%d layers, missing %v", len(h.Layers), h.Missing)
	for _, dir := range []string{"/run", "/srv", "/home", "/var/lib", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		left, err := filepath.Glob(dir + "/chatd*doctor*")
		expect.True(t, err == nil && len(left) == 0, "left behind: %v %v", left, err)
	}
}

// TestAccountIsLocked: root itself does not get in as a chat by su(1), which
// stands for everything that asks PAM; the shell is none, the password is none.
func TestAccountIsLocked(t *testing.T) {
	m := open(t, options(t))
	c := asleep(t, m, "locked")
	out, err := exec.Command("su", "-s", "/bin/sh", c.User, "-c", "echo got in").CombinedOutput()
	expect.True(t, err != nil && !strings.Contains(string(out), "got in"),
		"su as the chat: %v, %s", err, out)
	if out, err := exec.Command("su", "-s", "/bin/sh", "nobody", "-c", "echo got in").CombinedOutput(); err != nil || !strings.Contains(string(out), "got in") {
		t.Errorf("su as nobody does not work either, so this shows nothing: %v, %s", err, out)
	}
	out, err = exec.Command("getent", "passwd", c.User).Output()
	expect.True(t, err == nil && strings.HasSuffix(strings.TrimSpace(string(out)), ":/usr/sbin/nologin"),
		"the record: %q, %v", out, err)
	if out, err := exec.Command("getent", "shadow", c.User).Output(); err == nil && !strings.HasPrefix(string(out), c.User+":!") {
		t.Errorf("the password: %q", out)
	}
}

// TestEveryProcessIsInItsCgroup looks from outside, after the chat has tried to
// leave: whatever has its uid is below its cgroup, in the tree that can end it.
func TestEveryProcessIsInItsCgroup(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "stays in", "default")
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Enter: true, Text: "setsid sleep 1000 & (sleep 1000 &); " +
		"for f in $(find / -name cgroup.procs -o -name tasks 2>/dev/null); do echo $$ > $f; done; echo tr''ied"}))
	waitScreen(t, m, c.ID, "tried")
	pids := pidsOf(c.UID)
	expect.True(t, len(pids) >= 5, "only processes %v", pids)
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue // it ended
		}
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			limited := strings.HasPrefix(line, "0::") || strings.Contains(line, ":memory:") || strings.Contains(line, ":pids:") || strings.Contains(line, ":cpu:")
			if limited && !strings.Contains(line, string(c.ID)) {
				t.Errorf("process %d is in %s", pid, line)
			}
		}
	}
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	left := pidsOf(c.UID)
	expect.True(t, len(left) == 0, "processes %v outlived the chat", left)
}

// TestAtWorkIsNotIdle: used_at moves as long as a chat is at work, however the work was begun,
// for `reap --idle` goes by it.
func TestAtWorkIsNotIdle(t *testing.T) {
	opt := options(t)
	opt.Every = time.Hour // the minute's look moves it too
	m := open(t, opt)
	ctx := operator(t.Context())
	c := create(t, m, "at work", "default")
	moves := func(what string) {
		t.Helper()
		before := must.Get(m.Get(ctx, c.ID))(t)
		until(t, what+" moves used_at", func() bool {
			return must.Get(m.Get(ctx, c.ID))(t).UsedAt.After(before.UsedAt)
		})
	}
	foreground := func(what string, work func(ctx context.Context, started func(string)) error) {
		t.Helper()
		within, cancel := context.WithCancel(ctx)
		begun, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- work(within, func(string) { close(begun) }) }()
		<-begun
		moves(what)
		now, err := m.Get(ctx, c.ID)
		if must.Do(t, err); len(now.Work) == 0 {
			t.Errorf("%s: it does nothing", what)
		}
		cancel()
		<-ended
	}
	spec := chat.RunSpec{Argv: []string{"sleep", "600"}, Timeout: chat.Duration(10 * time.Minute)}
	foreground("a run", func(ctx context.Context, started func(string)) error {
		spec := spec
		spec.Started = started
		return expect.Err(m.Run(ctx, c.ID, spec))
	})
	foreground("an attached client", func(ctx context.Context, started func(string)) error {
		a := chat.Attach{TTY: chat.TTY{Rows: 24, Cols: 80}, ReadOnly: true, Started: started}
		return expect.Err(m.Attach(ctx, c.ID, a, func(string, []byte) {}))
	})
	r := startRun(t, m, c.ID, spec)
	moves("a background run")
	until(t, "its run and its program are told", func() bool {
		now := must.Get(m.Get(ctx, c.ID))(t)
		return slices.Equal(now.Work, []string{"a run", `the program "sleep"`})
	})
	before := must.Get(m.Get(ctx, c.ID))(t)
	must.Do(t, m.EndRun(ctx, c.ID, r.ID))
	after := must.Get(m.Get(ctx, c.ID))(t)
	expect.True(t, after.UsedAt.After(before.UsedAt), "the end of a background run did not move used_at")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "(while sleep 1; do echo working; done) &", Enter: true}))
	moves("the terminal's output")
}
