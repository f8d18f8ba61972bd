package roottest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// traces lists everything on this host that still belongs to a chat, looked for
// from outside: nothing of chatd's own is asked.
func traces(t testing.TB, opt provision.Options, c chat.Chat) []string {
	t.Helper()
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, pid := range pidsOf(c.UID) {
		add("process %d", pid)
	}
	for _, key := range []string{c.User, fmt.Sprint(c.UID)} {
		for _, db := range []string{"passwd", "group"} {
			if out, err := exec.Command("getent", db, key).Output(); err == nil {
				add("getent %s %s: %s", db, key, out)
			}
		}
	}
	for _, dir := range []string{"/srv", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/var/spool", "/var/mail", "/var/lib", "/etc/userdb", "/sys/fs/cgroup"} {
		for _, f := range filesOf(dir, c) {
			add("file %s", f)
		}
	}
	for _, kind := range []string{"shm", "sem", "msg"} {
		if b, err := os.ReadFile("/proc/sysvipc/" + kind); err == nil && strings.Contains(string(b), fmt.Sprint(c.UID)) {
			add("System V %s", kind)
		}
	}
	for _, file := range []string{"/proc/key-users", "/proc/self/mountinfo", "/etc/passwd", "/etc/group", "/etc/shadow"} {
		for line := range strings.Lines(string(must.Get(os.ReadFile(file))(t))) {
			if strings.Contains(line, string(c.ID)) || strings.Contains(line, fmt.Sprintf(" %d:", c.UID)) {
				add("%s: %s", file, line)
			}
		}
	}
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out := must.Get(exec.Command(save).Output())(t)
		if strings.Contains(string(out), "--uid-owner "+fmt.Sprint(c.UID)+" ") {
			add("a rule in %s", save)
		}
	}
	return found
}

// filesOf are the files that the uid owns or that have the chat's id in the name.
func filesOf(dir string, c chat.Chat) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		var fs unix.Statfs_t
		if d.IsDir() && unix.Statfs(path, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC {
			return filepath.SkipDir // a chroot's: its files belong to its user
		}
		if d.IsDir() && filepath.Dir(path) == "/tmp" && strings.HasPrefix(d.Name(), worldsPrefix) {
			return filepath.SkipDir // worlds of tests: another may have the same uids; ours is /srv
		}
		fi, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if ok && (st.Uid == c.UID || st.Gid == c.UID) || strings.Contains(d.Name(), string(c.ID)) || strings.Contains(d.Name(), fmt.Sprint(c.UID)) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// pidsOf are the processes whose real uid is uid, zombies too, unless they are
// init's to collect, or this process's: a daemon that a test kills leaves its
// sessions to the next subreaper, which this process is once it has been a daemon
// itself.
func pidsOf(uid uint32) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		status := string(b)
		if err != nil || !strings.Contains(status, fmt.Sprintf("\nUid:\t%d\t", uid)) {
			continue
		}
		zombie := strings.Contains(status, "\nState:\tZ")
		if zombie && strings.Contains(status, fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			continue
		}
		if !zombie || !strings.Contains(status, "\nPPid:\t1\n") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone fails unless nothing of the chat is left.
func gone(t testing.TB, opt provision.Options, c chat.Chat) {
	t.Helper()
	forgotten(t, opt, c)
	if left := traces(t, opt, c); len(left) > 0 {
		t.Errorf("chat %s (uid %d) left behind:\n  %s", c.ID, c.UID, strings.Join(left, "\n  "))
	}
}

// forgotten waits until the enforcer has no record of a chat. A request that was sent while the
// chat was reaped leaves one until the enforcer checks for ended sessions, every ten seconds; an
// enforcer that was killed meanwhile leaves it to the next.
func forgotten(t testing.TB, opt provision.Options, c chat.Chat) {
	t.Helper()
	until(t, "the enforcer forgets the chat", func() bool {
		left := must.Get(filepath.Glob(filepath.Join(opt.Run, "keeper/sessions", string(c.ID)+".*")))(t)
		return len(left) == 0
	})
}

// whole fails unless the chat has what a chat that sleeps has.
func whole(t testing.TB, opt provision.Options, c chat.Chat) {
	t.Helper()
	for _, key := range []string{c.User, fmt.Sprint(c.UID)} {
		out, err := exec.Command("getent", "passwd", key).Output()
		expect.True(t, err == nil && strings.HasPrefix(string(out), c.User+":"),
			"getent passwd %s: %q, %v", key, out, err)
	}
	tmp, varTmp := privateTrees(opt, c)
	for _, dir := range []string{c.Home, tmp, varTmp} {
		fi, err := os.Lstat(dir)
		if err != nil {
			t.Error(err)
			continue
		}
		if st := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || fi.Mode().Perm() != 0o700 || st.Uid != c.UID || st.Gid != c.UID {
			t.Errorf("%s is %s of %d:%d", dir, fi.Mode(), st.Uid, st.Gid)
		}
	}
}

// TestTracesOfOtherWorlds: what another test has below its own /srv is no trace of this one's
// chat, also where its uids are the same; what lies beside that is.
func TestTracesOfOtherWorlds(t *testing.T) {
	c := chat.Chat{UID: testUIDs.High - 1, ID: "no-chat-has-this-name"}
	for prefix, found := range map[string]bool{worldsPrefix: false, "chatd-elsewhere-": true} {
		dir := must.Get(os.MkdirTemp("/tmp", prefix))(t)
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, fmt.Sprintf("%d.user", c.UID))
		must.Do(t, os.WriteFile(file, nil, 0o600))
		expect.True(t, slices.Contains(filesOf("/tmp", c), file) == found,
			"that %s is found is not %v", file, found)
	}
}
