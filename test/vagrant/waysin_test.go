//go:build e2e

package vagrant

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// way is one way into an account. It says whether name got in, by what a command
// that ran as that user printed or left.
type way struct {
	name string
	try  func(t *testing.T, u user, name string) (in bool, said string)
}

// loggedIn runs a program and looks for what whoami prints.
func loggedIn(name string, line ...string) (bool, string) {
	out, err := try(90*time.Second, line[0], line[1:]...)
	for l := range strings.Lines(out) {
		// A terminal that is closed at once echoes a control byte in front.
		if strings.HasSuffix(strings.TrimRight(l, "\r\n"), "in:"+name) {
			return true, out
		}
	}
	return false, fmt.Sprint(out, err)
}

// onTerminal is a command line under a terminal of its own, which login and
// machinectl want.
func onTerminal(command string) []string { return []string{"script", "-qec", command, "/dev/null"} }

const whoami = "echo in:$(id -un)"

// ways are those that answer at once; see also queues.
var ways = []way{
	{"su", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, "su", "-s", "/bin/sh", name, "-c", whoami)
	}},
	{"su_login", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, "su", "-", name, "-c", whoami)
	}},
	{"runuser_login", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, "runuser", "-l", name, "-c", whoami)
	}},
	{"login", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, "sh", "-c", "(sleep 15; echo '"+whoami+"'; sleep 10; echo exit) | timeout 60 script -qec 'login -f "+name+"' /dev/null")
	}},
	{"ssh_command", func(_ *testing.T, u user, name string) (bool, string) {
		return loggedIn(name, append(u.line("ssh", name), whoami)...)
	}},
	{"ssh_terminal", func(_ *testing.T, u user, name string) (bool, string) {
		return loggedIn(name, append(u.line("ssh", name, "-tt"), whoami)...)
	}},
	{"ssh_subsystem", func(t *testing.T, u user, name string) (bool, string) {
		batch := t.TempDir() + "/batch"
		must.Do(t, os.WriteFile(batch, []byte("pwd\n"), 0o600))
		line := u.line("sftp", name, "-b", batch)
		out, err := try(90*time.Second, line[0], line[1:]...)
		return strings.Contains(out, "Remote working directory"), fmt.Sprint(out, err)
	}},
	{"ssh_forward", tryForward},
	{"machinectl", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, onTerminal("machinectl -q shell "+name+"@.host /bin/sh -c '"+whoami+"'")...)
	}},
	{"run_user", func(_ *testing.T, _ user, name string) (bool, string) {
		return loggedIn(name, "systemd-run", "--user", "--machine="+name+"@.host", "--quiet", "--pipe", "--wait", "sh", "-c", whoami)
	}},
	{"linger", tryLinger},
}

// tryForward asks for no session at all, only for a way out: the connection
// would be sshd's child's, outside every wall.
func tryForward(t *testing.T, u user, name string) (bool, string) {
	useOutside(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	here := l.Addr().String()
	must.Do(t, l.Close())
	line := u.line("ssh", name, "-N", "-o", "ExitOnForwardFailure=yes", "-L", here+":"+outsideV4+":8001")
	cmd := exec.Command(line[0], line[1:]...)
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	for range 120 {
		if connect("tcp", here) == nil {
			return true, "the outside answered through " + here
		}
		select {
		case err := <-ended:
			return false, fmt.Sprint("ssh ended: ", err)
		case <-time.After(500 * time.Millisecond):
		}
	}
	return false, "ssh lives, and nobody answers"
}

// tryLinger wants a service manager of the user's own, without any login.
func tryLinger(t *testing.T, _ user, name string) (bool, string) {
	out, err := try(timeout, "loginctl", "enable-linger", name)
	defer func() { _, _ = try(timeout, "loginctl", "disable-linger", name) }()
	unit := "user@" + output(t, "id", "-u", name) + ".service"
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if state := property(t, unit, "ActiveState"); state == "active" {
			return true, unit + " runs"
		} else if state == "failed" {
			return false, unit + " failed"
		}
	}
	return false, fmt.Sprint(unit, " does not run: ", out, err)
}

// TestHostNoWayIn: whatever opens an ordinary user's account does not open a
// chat's, though it has the same key in its authorized_keys.
func TestHostNoWayIn(t *testing.T) {
	u, c := newUser(t), create(t, "")
	said(t, c.ID, fmt.Sprintf("umask 077; mkdir -p ~/.ssh && echo '%s' > ~/.ssh/authorized_keys", content(t, u.key+".pub")))
	check := queues(t, u, c)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			in, what := w.try(t, u, u.name)
			expect.True(t, in, "the control failed: user %s does not get in: %s", u.name, what)
			in, what = w.try(t, u, c.User)
			expect.True(t, !in, "chat %s gets in: %s", c.User, what)
		})
	}
	t.Run("queues", check)
	t.Run("shell", func(t *testing.T) {
		entry := strings.Split(output(t, "getent", "passwd", c.User), ":")
		if shell := entry[len(entry)-1]; !strings.HasSuffix(shell, "/nologin") {
			t.Errorf("the chat's shell is %s", shell)
		}
		if hash := strings.Split(output(t, "getent", "shadow", c.User), ":")[1]; !strings.HasPrefix(hash, "!") && hash != "*" {
			t.Errorf("the chat has a password: %s", hash)
		}
	})
}

// queues hands jobs to cron and at, by root for the user and by the user itself,
// and returns what looks whether they ran. cron needs up to a minute, in which
// the other ways are tried.
func queues(t *testing.T, u user, c chat.Chat) func(*testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o1777))
	must.Do(t, os.Chmod(dir+"/..", 0o755))
	marker := func(kind, name string) string { return dir + "/" + kind + "-" + name }
	as := func(name, script string) {
		// What the program says does not matter, only whether the job runs.
		out, err := try(timeout, "setpriv", "--reuid", name, "--regid", name, "--init-groups", "sh", "-c", "cd /; "+script)
		t.Logf("%s as %s: %v %s", script, name, err, out)
	}
	for _, name := range []string{u.name, c.User} {
		job := "* * * * * /bin/touch " + marker("cron", name) + "\n"
		must.Do(t, os.WriteFile(dir+"/tab", []byte(job), 0o644))
		out, err := try(timeout, "crontab", "-u", name, dir+"/tab")
		t.Logf("crontab -u %s: %v %s", name, err, out)
		as(name, "crontab -l >/dev/null 2>&1 || crontab "+dir+"/tab")
		as(name, "echo /bin/touch "+marker("at", name)+" | at now")
	}
	t.Cleanup(func() {
		_, _ = try(timeout, "crontab", "-u", c.User, "-r")
		_, _ = try(timeout, "crontab", "-u", u.name, "-r")
	})
	return func(t *testing.T) {
		for _, kind := range []string{"cron", "at"} {
			eventually(t, timeout, kind+" runs the control's job", func() bool {
				_, err := os.Stat(marker(kind, u.name))
				return err == nil
			})
			expect.True(t, expect.Err(os.Stat(marker(kind, c.User))) != nil,
				"%s ran a job of %s", kind, c.User)
		}
	}
}
