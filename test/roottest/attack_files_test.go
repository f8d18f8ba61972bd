package roottest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackFiles: chat A tries to get at files of B, of the host and of the
// daemon, by every road from one path to another.
func TestAttackFiles(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a, b := inmateOf(t, m, "file a", "default"), inmateOf(t, m, "file b", "default")
	for _, i := range []inmate{a, b} {
		// As careless as can be: for everybody to read.
		i.sh(t, `umask 0; echo secret >note; mkdir -m 777 open; for d in /tmp /var/tmp /dev/shm /run/chat; do echo secret >$d/note; done; ln -s / rootlink`)
	}
	sock := filepath.Join(opt.Run, "chatd.sock")
	l := must.Get(net.Listen("unix", sock))(t)
	t.Cleanup(func() { l.Close() })
	go answerAll(l)
	must.Do(t, os.Chmod(sock, 0o666))
	const gone = "ENOENT ENOTDIR EACCES"
	up := strings.Repeat("../", 20)
	bTmp, bVarTmp := privateTrees(opt, b.Chat)
	bPid := b.pidOf(t, "tmux: server")
	bRoot := fmt.Sprintf("/proc/%d/root", bPid)
	for _, c := range []struct {
		name string
		do   []string
		want string
		// control is the same by root on the host, or own by A to itself; it succeeds.
		host []string
		own  []string
	}{
		{"read a file of B", []string{"read", b.in("note")}, gone, nil, []string{"read", a.in("note")}},
		{"list B's home", []string{"list", b.Home}, gone, nil, []string{"list", a.Home}},
		{"stat B's home", []string{"stat", b.Home}, gone, nil, []string{"stat", a.Home}},
		{"write into B's home", []string{"write", b.in("open/x"), "x"}, gone, nil, []string{"write", a.in("open/x"), "x"}},
		{"list the homes", []string{"list", opt.Homes}, gone, []string{"list", opt.Homes}, nil},
		{"up and over", []string{"read", a.Home + "/" + up + b.in("note")}, gone, nil, []string{"read", a.Home + "/" + up + a.in("note")}},
		{"by a link in its home", []string{"read", a.in("rootlink" + b.in("note"))}, gone, nil, []string{"read", a.in("rootlink" + a.in("note"))}},
		{"by /proc/self/root", []string{"read", "/proc/self/root" + b.in("note")}, gone, nil, []string{"read", "/proc/self/root" + a.in("note")}},
		{"by pid 1's root", []string{"read", "/proc/1/root" + b.in("note")}, gone, []string{"read", bRoot + b.in("note")}, nil},
		{"by B's root", []string{"read", bRoot + b.in("note")}, gone, []string{"read", bRoot + b.in("note")}, nil},
		{"move B's file away", []string{"rename", b.in("note"), a.in("stolen")}, gone, nil, []string{"rename", a.in("rootlink"), a.in("moved")}},
		{"hard link to B's file", []string{"link", b.in("note"), a.in("stolen")}, gone, nil, []string{"link", a.in("note"), a.in("linked")}},
		{"hard link to a host program", []string{"link", "/usr/bin/su", a.in("su")}, "EXDEV EPERM EACCES", nil, []string{"link", a.in("note"), a.in("linked2")}},
		{"hard link by descriptor", []string{"link-fd", "/usr/bin/su", a.in("su")}, "EXDEV EPERM EACCES ENOENT", []string{"link-fd", b.in("note"), b.in("linked")}, nil},
		{"open by handle", []string{"handle", a.in("note")}, "EPERM", []string{"handle", b.in("note")}, nil},
		{"B's /tmp on the host", []string{"read", bTmp + "/note"}, gone, []string{"read", bTmp + "/note"}, nil},
		{"B's /var/tmp on the host", []string{"read", bVarTmp + "/note"}, gone, []string{"read", bVarTmp + "/note"}, nil},
		{"B's terminal by B's root", []string{"dial-unix", bRoot + "/run/chat/tmux.sock"}, gone, []string{"stat", bRoot + "/run/chat/tmux.sock"}, nil},
		{"the state directory", []string{"list", opt.State}, gone, []string{"list", opt.State}, nil},
		{"the records", []string{"read", filepath.Join(opt.State, "chatd.db")}, gone, nil, nil},
		{"the run directory", []string{"list", opt.Run}, gone, []string{"list", opt.Run}, nil},
		{"the daemon's socket", []string{"dial-unix", sock}, gone, []string{"dial-unix", sock}, nil},
		{"account records", []string{"read", "/etc/userdb/" + b.User + ".user"}, gone, []string{"read", "/etc/userdb/" + b.User + ".user"}, nil},
		{"the host's shadow", []string{"read", "/etc/shadow"}, gone, []string{"read", "/etc/shadow"}, nil},
		{"root's home", []string{"list", "/root"}, gone, []string{"list", "/root"}, nil},
		{"the root directory", []string{"list", "/"}, "EACCES", []string{"list", "/"}, nil},
		{"give a file to B", []string{"chown", a.in("note"), fmt.Sprint(b.UID)}, "EINVAL EPERM", []string{"chown", b.in("note"), fmt.Sprint(b.UID)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			outcomes(t, "A", a.try(t, c.do...), c.want)
			if c.host != nil {
				outcomes(t, "control: root on the host", asHost(t, c.host...), "ok")
			}
			if c.own != nil {
				outcomes(t, "control: A to itself", a.try(t, c.own...), "ok")
			}
		})
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run/chat"} {
		t.Run("B's "+dir, func(t *testing.T) {
			a.sh(t, "rm "+dir+"/note")
			outcomes(t, "A", a.try(t, "read", dir+"/note"), "ENOENT")
			outcomes(t, "control: B", b.try(t, "read", dir+"/note"), "ok")
		})
	}
}

// TestAttackWritable compares everything that a chat can write to with the
// list of what it should, as systemd's TEST-34 does.
func TestAttackWritable(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "writable", "default")
	t.Run("mounts", func(t *testing.T) {
		var got []string
		for _, p := range strings.Fields(strings.TrimPrefix(a.try(t, "read-write"), "ok")) {
			// Devices are bound one by one, and a device is not a place.
			if fi, err := os.Stat(p); p == "/run/chat" || err != nil || fi.IsDir() {
				got = append(got, p)
			}
		}
		want := []string{"/proc", "/dev/pts", "/run/chat", "/dev/shm", "/tmp", "/var/tmp", a.Home}
		expect.Equal(t, difference(got, want), "", "writable mounts")
	})
	t.Run("files", func(t *testing.T) {
		got := strings.Fields(strings.TrimPrefix(a.try(t, "writable", "/", "/dev", "/proc", "/opt", "/opt/chatd", "/etc", "/run", "/usr", "/srv", "/home", "/var", "/var/lib", "/sys", "/root", "/mnt"), "ok"))
		var outside []string
		for _, p := range got {
			own := false
			for _, dir := range []string{a.Home, "/var/tmp", "/dev/shm", "/run/chat"} {
				own = own || strings.HasPrefix(p, dir+"/")
			}
			// The attacker's own streams, by any of their names.
			own = own || strings.HasPrefix(p, "/dev/std") || strings.HasPrefix(p, "/proc/") && strings.Contains(p, "/fd/")
			if !own {
				outside = append(outside, p)
			}
		}
		want := []string{"/dev/full", "/dev/null", "/dev/ptmx", "/dev/pts/0", "/dev/pts/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero", "/opt/chatd/log", "/opt/chatd/prompt"}
		expect.Equal(t, difference(outside, want), "", "writable files")
		expect.True(t, len(outside) != len(got), "control: A cannot write to its own home either")
	})
}

func difference(got, want []string) string {
	count := map[string]int{}
	for _, g := range got {
		count[g] |= 1
	}
	for _, w := range want {
		count[w] |= 2
	}
	var out []string
	for p, c := range count {
		switch c {
		case 1:
			out = append(out, "unexpected "+p)
		case 2:
			out = append(out, "missing "+p)
		}
	}
	return strings.Join(out, ", ")
}
