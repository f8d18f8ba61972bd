package roottest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/unshare"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// spoken is what one chat tries to tell another.
const spoken = "the plan is in the garden"

// exposedTree makes a directory of the host, with files, a fifo and a socket in it, and a
// profile to which it is exposed read-only.
func exposedTree(t *testing.T, opt provision.Options) string {
	t.Helper()
	dir := srvDir(t)
	for i := range 20 {
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%02d", i)), []byte("x"), 0o644))
	}
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	must.Do(t, os.Chmod(filepath.Join(dir, "fifo"), 0o666))
	expose(opt, "reader", dir, dir)
	expose(opt, "reader", dir+"/file00", "/srv/alone")
	return dir
}

// TestAttackShared: two chats may read the same trees of the host, and try to talk and to
// spy through them; a chat tries to hold up the host. TestSharedWithout shows that each
// try gets through where a session's tree is not its own.
func TestAttackShared(t *testing.T) {
	opt := attackOptions(t)
	dir := exposedTree(t, opt)
	m := open(t, opt)
	a, b := inmateOf(t, m, "shared a", "reader"), inmateOf(t, m, "shared b", "reader")
	for _, d := range []string{"/usr/bin", "/etc/ssl/certs", dir} {
		expect.Equal(t, talkByOpens(t, a, b, d), "ok", "by opens in %s: B heard", d)
	}
	for _, f := range []string{"/usr/bin/env", "/etc/ld.so.cache", "/opt/chatd/chatd-shim", dir + "/file01", "/srv/alone", "/dev/full", "/usr"} {
		expect.Equal(t, talkByLocks(t, a, b, f), "ok", "by locks on %s: B heard", f)
		got := lockOut(t, a, b, f)
		expect.True(t, got == "ok free", "flock on %s: %s for B", f, got)
		outcomes(t, "a lease on "+f, a.try(t, "lease", f), "EACCES EAGAIN EINVAL")
	}
	for _, d := range []string{"/opt/chatd/bin", "/opt/chatd/shims", "/etc/alternatives"} {
		got := lockOut(t, a, b, d)
		expect.True(t, got == "ok free", "flock on %s: %s for B", d, got)
	}
	expect.Equal(t, lockOutHost(t, a, "/usr/bin/env"), "ok free",
		"flock of a chat on the host's /usr/bin/env")
	through, what := seeOpens(t, m)
	expect.True(t, !through, "%v", what)
	t.Run("what lies in an exposed tree", func(t *testing.T) { leadsNowhere(t, a, dir) })
	t.Run("what the host changes", func(t *testing.T) { seesChanges(t, a, dir) })
	t.Run("counters", func(t *testing.T) { countersAreMasked(t, a) })
	t.Run("terminals", func(t *testing.T) {
		if got := a.try(t, "count-terminals", "200"); got == "ok 200" || got == "ok 0" {
			t.Errorf("a chat opens %s terminals, want fewer than %d", got, unshare.MaxTerminals)
		}
	})
}

// talkByOpens is what B hears of what A says by opening files.
func talkByOpens(t *testing.T, a, b inmate, dir string) string {
	t.Helper()
	return meanwhile(t, b, []string{"hear-opens", dir}, func() {
		outcomes(t, "A says it", a.try(t, "say-by-opens", dir, spoken), "ok")
	})
}

// meanwhile has i do an act that begins and ends by files, does do, and tells what i says.
func meanwhile(t *testing.T, i inmate, argv []string, do func()) string {
	t.Helper()
	for _, f := range []string{"ready", "stop", "got"} {
		_ = os.Remove(i.in(f))
	}
	said := make(chan string, 1)
	go func() {
		r, err := i.m.Run(operator(t.Context()), i.ID, chat.RunSpec{Argv: append(append([]string{i.program}, argv...), i.in("ready"), i.in("stop")), Timeout: tryTimeout})
		if err != nil {
			said <- err.Error()
			return
		}
		said <- lastLine(r.Stdout, r.Stderr)
	}()
	until(t, fmt.Sprintf("%q is ready", argv), func() bool {
		select {
		case what := <-said:
			t.Fatalf("%q ended: %s", argv, what)
		default:
		}
		return exists(i.in("ready"))()
	})
	do()
	must.Do(t, os.WriteFile(i.in("stop"), nil, 0o644))
	return <-said
}

// talkByLocks is what B hears of what A says by locks.
func talkByLocks(t *testing.T, a, b inmate, file string) (heard string) {
	t.Helper()
	meanwhile(t, a, []string{"say-by-locks", file, spoken}, func() {
		heard = b.try(t, "hear-locks", file, fmt.Sprint(len(spoken)))
	})
	return heard
}

// lockOut is what B meets where A holds a lock (flock(2)).
func lockOut(t *testing.T, a, b inmate, file string) (met string) {
	t.Helper()
	meanwhile(t, a, []string{"hold-flock", file}, func() { met = b.try(t, "flock", file) })
	return met
}

// lockOutHost is what root on the host meets.
func lockOutHost(t *testing.T, a inmate, file string) (met string) {
	t.Helper()
	meanwhile(t, a, []string{"hold-flock", file}, func() { met = asHost(t, "flock", file) })
	return met
}

// leadsNowhere: neither a fifo nor a socket of the host is reached through an overlay.
func leadsNowhere(t *testing.T, a inmate, dir string) {
	l := must.Get(net.Listen("unix", dir+"/socket"))(t)
	defer l.Close()
	go answerAll(l)
	must.Do(t, os.Chmod(dir+"/socket", 0o666))
	fifo := must.Get(os.OpenFile(dir+"/fifo", os.O_RDWR, 0))(t)
	defer fifo.Close()
	outcomes(t, "A dials a socket of the host", a.try(t, "dial-unix", dir+"/socket"), "ECONNREFUSED")
	outcomes(t, "A writes into a fifo of the host", a.try(t, "dial-fifo", dir+"/fifo"), "ENXIO EROFS EACCES")
}

// seesChanges: what the host makes, changes, replaces and removes in an exposed tree is
// seen by what begins in the session afterwards, also where the name was looked up before.
func seesChanges(t *testing.T, a inmate, dir string) {
	file := filepath.Join(dir, "changing")
	look := "cat " + file + " 2>&1 || true"
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error { return nil }, "No such file"},
		{func() error { return os.WriteFile(file, []byte("one"), 0o644) }, "one"},
		{func() error { return os.WriteFile(file, []byte("two"), 0o644) }, "two"},
		{func() error {
			return errors.Join(os.WriteFile(file+".new", []byte("three"), 0o644), os.Rename(file+".new", file))
		}, "three"},
		{func() error { return os.Remove(file) }, "No such file"},
	} {
		must.Do(t, c.do())
		until(t, "A sees "+c.want, func() bool { return strings.Contains(a.sh(t, look), c.want) })
	}
}

// countersAreMasked: of what /proc tells of the whole host, a chat sees what ordinary
// programs need and nothing else that changes.
func countersAreMasked(t *testing.T, a inmate) {
	for _, p := range []string{"/proc/vmstat", "/proc/interrupts", "/proc/softirqs", "/proc/locks", "/proc/zoneinfo", "/proc/buddyinfo",
		"/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr", "/proc/sys/fs/dentry-state", "/proc/sys/kernel/pty/nr", "/proc/key-users", "/proc/modules", "/proc/cgroups"} {
		got := a.sh(t, "cat "+p+" 2>/dev/null | wc -c")
		expect.True(t, got == "0", "A reads %s bytes of %s", got, p)
	}
	expect.Equal(t, a.sh(t, "ls -A /proc/pressure /proc/fs /proc/irq 2>/dev/null | grep -v : | tr -d '\n'"), "",
		"A sees")
	for _, command := range []string{"free", "uptime", "nproc", "top -b -n 1", "cat /proc/meminfo /proc/stat /proc/loadavg /proc/cpuinfo /proc/uptime"} {
		expect.True(t, a.sh(t, command+" | wc -c") != "0", "%s says nothing", command)
	}
	expect.Equal(t, a.sh(t, `find /proc/sys -type f 2>/dev/null | while read f; do [ -c "$f" ] || (: >>"$f") 2>/dev/null && [ ! -c "$f" ] && echo "$f"; done; true`), "",
		"A may write")
	changing := changingCounters(t, a)
	for _, known := range []string{"/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime"} {
		changing = slices.DeleteFunc(changing, func(p string) bool { return p == known })
	}
	expect.True(t, len(changing) == 0,
		"these change for all, and SECURITY.md does not say so: %v", changing)
}

// changingCounters are the files of /proc, but those of processes and the network, that
// read differently while the host works.
func changingCounters(t *testing.T, a inmate) []string {
	const sums = `find /proc /proc/sys -xdev -type f -readable -not -path '/proc/[0-9]*' -not -path '/proc/sys/net/*' -not -name uuid ` +
		`-not -name kcore -not -name kallsyms -not -name ns_last_pid -not -name config.gz 2>/dev/null | sort -u | xargs md5sum 2>/dev/null || true`
	before := a.sh(t, sums)
	for range 50 { // work of others
		must.Do(t, os.WriteFile(filepath.Join(t.TempDir(), "x"), make([]byte, 1<<16), 0o600))
	}
	after := map[string]bool{}
	for line := range strings.Lines(a.sh(t, sums)) {
		after[strings.TrimSpace(line)] = true
	}
	var changed []string
	for line := range strings.Lines(before) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && !after[sum+"  "+name] {
			changed = append(changed, name)
		}
	}
	return changed
}
