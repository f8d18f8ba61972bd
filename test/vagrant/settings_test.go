//go:build e2e

package vagrant

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chatd/chatd/test/expect"
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
	if out, err := ls("--clear-groups"); err == nil {
		t.Errorf("an ordinary user may ask: %s", out)
	}
	for _, group := range []string{"chatd-bridge", "chatd-operators"} {
		gid := shell(t, "getent group "+group+" | cut -d: -f3")
		if out, err := ls("--groups=" + gid); err != nil {
			t.Errorf("a member of %s may not ask: %v %s", group, err, out)
		}
	}
}
