package shims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// enterName is the test binary as chatd-shim enter, or as a part of it.
const enterName = "enter-test"

// enterMain moves itself from the cgroup that is named, and says where it is.
func enterMain(args []string) int {
	if len(args) == 0 {
		return runEnter(nil, os.Stderr)
	}
	if err := moveToLeaf(args[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	where, _ := os.ReadFile("/proc/self/cgroup")
	fmt.Print(string(where))
	return 0
}

// cgroup2Dir makes a cgroup for one test, where this host has a cgroup2 tree.
func cgroup2Dir(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/unified/cgroup.procs"); err == nil {
		root += "/unified"
	}
	dir := filepath.Join(root, fmt.Sprintf("chatd-test-enter-%d", os.Getpid()))
	err := os.Mkdir(dir, 0o755)
	need(t, err == nil, fmt.Sprintf("root, and a cgroup2 tree: %v", err))
	t.Cleanup(func() {
		_ = os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			_ = unix.Rmdir(dir + "/session")
			if unix.Rmdir(dir) == nil {
				return
			}
		}
		t.Errorf("cannot remove %s", dir)
	})
	return dir
}

func inCgroup(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	d := must.Get(os.Open(dir))(t)
	t.Cleanup(func() { d.Close() })
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	return cmd
}

// TestMoveToLeaf has company in the unit, one process of which hears no SIGTERM.
func TestMoveToLeaf(t *testing.T) {
	dir := cgroup2Dir(t)
	var company []*exec.Cmd
	for _, script := range []string{"exec sleep 60", "trap '' TERM; while :; do sleep 1; done"} {
		cmd := inCgroup(t, dir, "/bin/sh", "-c", script)
		must.Do(t, cmd.Start())
		company = append(company, cmd)
		go func() { _ = cmd.Wait() }()
	}
	cmd := inCgroup(t, dir, "/proc/self/exe", dir)
	cmd.Args[0] = enterName
	out, err := cmd.CombinedOutput()
	must.True(t, err == nil && strings.Contains(string(out), filepath.Base(dir)+"/session\n"),
		"%v: %s", err, out)
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	expect.True(t, err == nil && len(bytes.TrimSpace(procs)) == 0,
		"left in the unit's own cgroup: %q %v", procs, err)
	for _, c := range company {
		expect.True(t, unix.Kill(c.Process.Pid, 0) != nil, "process %d of the unit lives on", c.Process.Pid)
	}
}

func TestEntryCheck(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	var st unix.Stat_t
	must.Do(t, unix.Stat(own, &st))
	right := plan.OwnMount{Path: own, Dev: st.Dev, Ino: st.Ino}
	wrong := plan.OwnMount{Path: other, Dev: st.Dev, Ino: st.Ino}
	var shm unix.Stat_t
	must.Do(t, unix.Stat("/dev/shm", &shm))
	for name, c := range map[string]struct {
		e    plan.Entry
		want string
	}{
		"own":         {plan.Entry{Own: []plan.OwnMount{right}, HostShm: shm.Dev + 1}, ""},
		"nothing":     {plan.Entry{}, ""},
		"another's":   {plan.Entry{Own: []plan.OwnMount{right, wrong}}, "pam_namespace"},
		"none":        {plan.Entry{Own: []plan.OwnMount{{Path: own + "/none"}}}, "no such file"},
		"host's shm":  {plan.Entry{HostShm: shm.Dev}, "/dev/shm is the host's"},
		"no question": {plan.Entry{HostShm: 0}, ""},
	} {
		err := checkMounts(c.e)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: check gave %v, want %q", name, err, c.want)
		}
	}
}

func TestReadEntry(t *testing.T) {
	for text, want := range map[string]bool{
		`{"argv":["x"]}`: true, `{"argv":[]}`: false, `{}`: false, ``: false, `{"argv":["x"],"walls":0}`: false, `[1]`: false,
	} {
		name := filepath.Join(t.TempDir(), "entry")
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		f := must.Get(os.Open(name))(t)
		_, err := readEntry(f)
		expect.True(t, (err == nil) == want, "readEntry(%q) gave %v", text, err)
		f.Close()
	}
}

// fakeSystemd listens as PID 1 does. Messages come in order; a barrier's
// descriptor is closed once it was read.
func fakeSystemd(t *testing.T) <-chan string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	said := make(chan string, 10)
	go func() {
		defer close(said)
		buf, oob := make([]byte, 512), make([]byte, 512)
		for {
			n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			said <- string(buf[:n])
			fds, err := sys.Rights(oob[:oobn])
			expect.NoError(t, errors.Join(err, sys.CloseAll(fds)))
		}
	}()
	return said
}

func TestNotifyMain(t *testing.T) {
	said := fakeSystemd(t)
	must.Do(t, notifyMain(4711))
	if first, second := <-said, <-said; !strings.HasPrefix(first, "MAINPID=4711\n") || second != "BARRIER=1" {
		t.Errorf("systemd heard %q and %q", first, second)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	expect.True(t, notify("READY=1", nil) != nil, "notify without NOTIFY_SOCKET gave no error")
}

// TestEnterWithoutHandshake: what is not a socket, or hands nothing over, ends it immediately and
// loudly.
func TestEnterWithoutHandshake(t *testing.T) {
	for name, stdin := range map[string]func() (*os.File, func()){
		"no socket": func() (*os.File, func()) { f, _ := os.Open("/dev/null"); return f, func() { f.Close() } },
		"closed":    func() (*os.File, func()) { return pair(t, nil) },
		"words":     func() (*os.File, func()) { return pair(t, []byte("files")) },
	} {
		f, done := stdin()
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{enterName}
		cmd.Stdin = f
		out, err := cmd.CombinedOutput()
		done()
		expect.True(t, err != nil && strings.Contains(string(out), "cannot enter the session"),
			"%s: %v: %s", name, err, out)
	}
	expect.True(t, runEnter([]string{"--now"}, &bytes.Buffer{}) != 0, "enter took an argument")
}

func pair(t *testing.T, say []byte) (*os.File, func()) {
	t.Helper()
	fds := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	if say != nil {
		must.Get(unix.Write(fds[0], say))(t)
	}
	must.Do(t, unix.Shutdown(fds[0], unix.SHUT_WR))
	f := os.NewFile(uintptr(fds[1]), "handshake")
	return f, func() { f.Close(); _ = unix.Close(fds[0]) }
}

func TestEntryJSON(t *testing.T) {
	b, err := json.Marshal(plan.Entry{Argv: []string{"bwrap"}, Own: []plan.OwnMount{{Path: "/tmp", Dev: 1, Ino: 2}}, HostShm: 3})
	want := `{"argv":["bwrap"],"own":[{"path":"/tmp","dev":1,"ino":2}],"host_shm":3}`
	expect.True(t, err == nil && string(b) == want, "%s %v, want %s", b, err, want)
}

// TestHomeFix tells an operator who tries chatd below /tmp what is weak there, and why.
func TestHomeFix(t *testing.T) {
	for home, want := range map[string]string{
		"/tmp/run/probe/1":     "move run and homes out of /tmp/",
		"/var/tmp/run/probe/1": "move run and homes out of /var/tmp/",
		"/tmphomes/1":          "chown the home",
		"/run/chatd/probe/1":   "chown the home",
	} {
		fix := homeFix(home)
		expect.True(t, strings.Contains(fix, want), "%s: the fix is %q, want %q", home, fix, want)
	}
}
