package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// explainedPaths are paths of every kind: of the system, the home, temporary directories,
// exposures, /proc and /dev, hidden ones, and links to them.
func explainedPaths(t *testing.T, home, shop string) []string {
	all := strings.Fields(`/ /bin /bin/sh /sbin /lib /lib64 /usr /usr/bin /usr/bin/env /usr/bin/awk /usr/lib /usr/lib/os-release
/usr/local /usr/share /usr/share/zz /usr/bin/zz /etc /etc/passwd /etc/group /etc/hosts /etc/resolv.conf /etc/shadow /etc/gshadow
/etc/sudoers /etc/ssl /etc/ssl/certs /etc/ssl/openssl.cnf /etc/os-release /etc/zz /etc/chatd /etc/machine-id /etc/alternatives
/proc /proc/self/status /proc/self/environ /proc/1/status /proc/cpuinfo /proc/meminfo /proc/sys/kernel/hostname
/proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/self/oom_score_adj /proc/self/comm
/dev /dev/null /dev/zero /dev/full /dev/urandom /dev/random /dev/kmsg /dev/mem /dev/sda /dev/shm /dev/shm/f /dev/ptmx /dev/pts
/tmp /tmp/f /tmp/sub/f /var /var/tmp /var/tmp/f /var/log /var/lib /root /root/.ssh /home /boot /opt /opt/chatd /opt/chatd/bashrc
/opt/chatd/tmux.conf /opt/chatd/bin /opt/chatd/shims /opt/chatd/chatd-shim /opt/x /run /run/chat /run/chat/f /run/chatd /run/systemd
/sys /sys/kernel /sys/fs/cgroup /srv /mnt /media /lost+found /zz`)
	for _, name := range []string{"", "f", "new", "d", "d/f", "d/new", "locked", "shut", "shut/f", "mine", "usr", "usr/bin/env", "shadow", "null",
		"gone", "etc/passwd", "etc/zz", "motd", "private", "loop", "up"} {
		all = append(all, filepath.Join(home, name))
	}
	for _, name := range []string{"", "tools", "tools/hello", "tools/zz", "shared", "shared/kept", "shared/new", "secret", "motd", "x", "x/out.log"} {
		all = append(all, filepath.Join(shop, name))
	}
	return all
}

// canUse tries each path as a program of the session does: a file is opened, and a directory is
// listed, or written to by a new file. One that is not there is made. It answers with r and w.
const canUse = `while IFS= read -r p; do
r=- w=-
if [ -d "$p" ]; then
	if ls -A "$p" >/dev/null 2>&1; then r=r; fi
	if (: >"$p/.try") 2>/dev/null; then w=w; rm -f "$p/.try"; fi
elif [ -e "$p" ]; then
	if (exec 3<"$p") 2>/dev/null; then r=r; fi
	if (exec 3>>"$p") 2>/dev/null; then w=w; fi
else
	r=0
	if (: >"$p") 2>/dev/null; then w=w; rm -f "$p"; fi
fi
echo "$r$w $p"
done`

// TestExplainAgreesWithTheKernel: what explain says of the view is what a program of the session
// can do, for paths of every kind, and it says the same of the chat while it is asleep.
func TestExplainAgreesWithTheKernel(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	s.write(t, "secret", "x")
	must.Do(t, os.Chmod(s.at("secret"), 0o600))
	edit(opt, "open", func(p *chat.Profile) {
		p.ExposePaths = []chat.Expose{
			{Source: s.at("tools"), Mode: chat.ReadOnly}, {Source: s.at("shared"), Mode: chat.ReadWrite},
			{Source: s.at("secret"), Mode: chat.ReadWrite}, {Source: s.at("motd"), Mode: chat.ReadWrite},
		}
	})
	m := open(t, opt)
	c := create(t, m, "explained", "open")
	run(t, m, c.ID, `echo x >f; mkdir d shut; echo x >d/f; echo x >locked; chmod 0 locked; echo x >shut/f; chmod 0 shut; echo x >mine; chmod 400 mine
ln -s /usr usr; ln -s /etc/shadow shadow; ln -s /dev/null null; ln -s /zz/gone gone; ln -s /etc etc; ln -s loop loop; ln -s .. up; mkdir /tmp/sub
ln -s `+s.at("motd")+` motd; ln -s `+s.at("secret")+` private`)
	paths := explainedPaths(t, c.Home, s.dir)
	ran, err := front(t, m).Run(operator(t.Context()), c.ID, chat.RunSpec{Argv: []string{"bash", "-c", canUse}, Stdin: strings.Join(paths, "\n") + "\n"})
	must.Do(t, err)
	lines := strings.Split(strings.TrimSpace(ran.Stdout), "\n")
	must.True(t, len(lines) == len(paths) && len(paths) >= 100,
		"%d paths, %d answers: %s", len(paths), len(lines), ran.Stderr)
	said := func() (all []string) {
		for _, path := range paths {
			line := ""
			for _, op := range []string{"bash", "write"} {
				e, err := front(t, m).Explain(operator(t.Context()), c.ID, chat.Question{Path: path, Op: op})
				must.Do(t, err)
				byView := func(d chat.DeniedBy) bool { return d.By == "view" }
				line += fmt.Sprint(slices.ContainsFunc(e.DeniedBy, byView), " ")
			}
			all = append(all, line)
		}
		return all
	}
	awake := said()
	for i, path := range paths {
		var readDenied, writeDenied bool
		must.Get(fmt.Sscan(awake[i], &readDenied, &writeDenied))(t)
		can := lines[i][:2]
		if can[0] != '0' && readDenied == (can[0] == 'r') || writeDenied == (can[1] == 'w') {
			t.Errorf("%s: a program can %s; explain denies to read: %v, to write: %v", path, can, readDenied, writeDenied)
		}
	}
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	for i, line := range said() {
		if line != awake[i] {
			t.Errorf("%s: asleep %s, awake %s", paths[i], line, awake[i])
		}
	}
}
