//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostSettings reads the kernel settings that chatd counts on where the
// kernel keeps them.
func TestHostSettings(t *testing.T) {
	for name, least := range map[string]int{
		"fs/protected_hardlinks": 1, "fs/protected_symlinks": 1, "fs/protected_fifos": 2, "fs/protected_regular": 2,
		"kernel/yama/ptrace_scope": 1, "kernel/dmesg_restrict": 1, "kernel/kptr_restrict": 1, "kernel/pty/max": 1 << 17,
	} {
		n, err := strconv.Atoi(content(t, "/proc/sys", name))
		expect.True(t, err == nil && n >= least, "%s is %d, want at least %d", name, n, least)
	}
	expect.Equal(t, content(t, "/proc/sys/vm/oom_dump_tasks"), "0",
		"vm.oom_dump_tasks is …: one chat could roll the kernel's log over")
}

// TestHostFiles: what chatd trusts can be changed by root alone, and who may ask
// is a matter of groups.
func TestHostFiles(t *testing.T) {
	for path, want := range map[string]string{
		program: "755 root root", "/usr/local/lib/chatd/chatd-shim": "755 root root", "/usr/local/lib/chatd/chatd-enforce": "755 root root",
		"/usr/local/lib/chatd/chatd-egress":  "755 root root",
		"/usr/local/lib/chatd/chatd-archive": "755 root root",
		"/usr/local/lib/chatd/chatd-root":    "755 root root",
		stateDir:                             "711 root root", homesDir: "711 root root", userdb: "711 root root",
		stateDir + "/tmp": "0 root root", stateDir + "/vartmp": "0 root root",
		stateDir + "/audit.jsonl": "600 root root",
		"/etc/chatd/access":       "750 root chatd-operators", "/etc/chatd/access/rules.yaml": "640 root chatd-operators",
	} {
		expect.Equal(t, output(t, "stat", "-c", "%a %U %G", path), want, "%s", path)
	}
	for _, name := range []string{"chatd", "chatd-limits.conf", "namespace.d/chatd.conf"} {
		found := false
		for _, dir := range []string{"/etc/pam.d", "/etc/security"} {
			if fi, err := os.Stat(filepath.Join(dir, name)); err == nil {
				found = fi.Mode().Perm()&0o022 == 0
			}
		}
		expect.True(t, found, "%s is not there, or others may write it", name)
	}
}

// TestHostSocket: a member of chatd-bridge may ask, an ordinary user may not even
// connect.
func TestHostSocket(t *testing.T) {
	u := newUser(t)
	ls := func(groups string) (string, error) {
		return try(timeout, "setpriv", "--reuid", u.name, "--regid", u.name, groups, program, "ls")
	}
	out, err := ls("--clear-groups")
	expect.True(t, err != nil, "an ordinary user may ask: %s", out)
	for _, group := range []string{"chatd-bridge", "chatd-operators"} {
		gid := shell(t, "getent group "+group+" | cut -d: -f3")
		if out, err := ls("--groups=" + gid); err != nil {
			t.Errorf("a member of %s may not ask: %v %s", group, err, out)
		}
	}
}

// TestHostDoctor: every wall stands. network is weaker where a profile shares the
// host's network and the kernel's Landlock does not scope abstract sockets, which
// Debian 12's does not.
func TestHostDoctor(t *testing.T) {
	useProfiles(t)
	h := host(t)
	expect.True(t, len(h.Missing) == 0 && len(h.Allowed) == 0 && len(h.Findings) == 0,
		"missing %v, allowed to miss %v, findings %q", h.Missing, h.Allowed, h.Findings)
	if len(h.Layers) != len(chat.LayerNames()) {
		t.Errorf("%d layers, want %d", len(h.Layers), len(chat.LayerNames()))
	}
	for _, l := range h.Layers {
		expect.True(t, l.State == chat.LayerOn && l.By != "" && l.Probe != "", "%+v, want on", l)
	}
	checkChatLayers(t, create(t, ""))
}

// checkChatLayers: a chat has every wall in full.
func checkChatLayers(t *testing.T, c chat.Chat) {
	for _, l := range get(t, c.ID).Layers {
		expect.True(t, l.State == chat.LayerOn, "of chat %s: %+v", c.ID, l)
		by := map[chat.LayerName]string{chat.LayerTmp: "pam_namespace", chat.LayerMemory: "cgroup v2", chat.LayerPids: "cgroup v2", chat.LayerCPU: "cgroup v2"}[l.Name]
		expect.True(t, strings.Contains(l.By, by), "%s is by %q, want %q", l.Name, l.By, by)
	}
}

// TestHostFront: what reads callers' text is one process of the user chatd, in a cgroup of its own
// in chatd's unit, with no capability and no way to one.
func TestHostFront(t *testing.T) {
	pid := strings.TrimSpace(output(t, "pgrep", "-x", "chatd-front"))
	must.True(t, pid != "" && !strings.Contains(pid, "\n"), "fronts: %q", pid)
	expect.Equal(t, strings.TrimSpace(output(t, "ps", "-o", "user=", "-p", pid)), "chatd", "it runs as")
	_, group, _ := strings.Cut(strings.TrimSpace(content(t, "/proc/"+pid+"/cgroup")), "::")
	expect.True(t, strings.HasSuffix(group, "/chatd.service/chatd.front"), "it is in %s", group)
	for file, want := range map[string]string{"memory.max": "1073741824", "pids.max": "512"} {
		expect.Equal(t, strings.TrimSpace(content(t, "/sys/fs/cgroup"+group+"/"+file)), want,
			"its %s", file)
	}
	noPrivilege(t, pid)
	entry := output(t, "getent", "passwd", "chatd")
	expect.True(t, strings.Contains(entry, "/usr/sbin/nologin"), "its user is %s", entry)
}

// user is an ordinary user of the machine, for controls: it has what a chat has
// (a name, a uid, a home, a key in authorized_keys), and may log in.
type user struct {
	name, uid, home string
	key             string // a private key that opens ssh for it
}

// newUser makes the user; it goes, with everything of it, when the test ends.
func newUser(t testing.TB) user {
	t.Helper()
	u := user{name: fmt.Sprintf("e2e%d", externals.Add(1)), home: "/home/e2e-control", key: t.TempDir() + "/key"}
	_, _ = try(timeout, "userdel", "-rf", u.name)
	output(t, "useradd", "-m", "-d", u.home+u.name, "-s", "/bin/bash", u.name)
	u.home += u.name
	t.Cleanup(func() {
		_, _ = try(timeout, "loginctl", "disable-linger", u.name)
		_, _ = try(timeout, "loginctl", "terminate-user", u.name)
		_, _ = try(timeout, "pkill", "-KILL", "-U", u.name)
		if _, err := try(timeout, "userdel", "-rf", u.name); err != nil && !strings.Contains(err.Error(), "mail spool") {
			t.Error(err)
		}
	})
	u.uid = output(t, "id", "-u", u.name)
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", u.key)
	must.Do(t, os.Mkdir(u.home+"/.ssh", 0o700))
	must.Do(t, os.WriteFile(u.home+"/.ssh/authorized_keys", []byte(content(t, u.key+".pub")+"\n"), 0o600))
	output(t, "chown", "-R", u.name+":", u.home+"/.ssh")
	return u
}

// line is a command line of ssh or sftp as far as the destination, on this machine.
func (u user) line(program, name string, options ...string) []string {
	all := append([]string{program, "-i", u.key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "ControlPath=none"}, options...)
	return append(all, name+"@127.0.0.1")
}

// ssh runs a command in a login of the user's.
func (u user) ssh(t testing.TB, command string) string {
	t.Helper()
	line := append(u.line("ssh", u.name), command)
	return output(t, line[0], line[1:]...)
}

// holdLock takes xtables' lock, as a program that edits rules by hand does, until
// the returned function is called.
func holdLock() (release func() error, err error) {
	f, err := os.OpenFile("/run/xtables.lock", os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of xtables: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot take the lock of xtables: %w", err), f.Close())
	}
	return f.Close, nil
}
