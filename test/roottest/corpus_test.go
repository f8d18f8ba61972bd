package roottest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// corpus reads a file of ../../guard/testdata: columns, and ␤ for the end of a line.
func corpus(t testing.TB, name string) (lines [][]string) {
	t.Helper()
	text := must.Get(os.ReadFile("../../internal/guard/testdata/" + name))(t)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			lines = append(lines, strings.Split(strings.ReplaceAll(line, "␤", "\n"), "\t"))
		}
	}
	return lines
}

// baitSecret is a text that no process in a chat may ever print.
const baitSecret = "SECRET-31415"

// bait is what the commands of the corpus are after: things that every user of the host
// may read, change, or talk to, where nothing but chatd's walls is in the way.
type bait struct {
	dir, target string
	pid         int
	port        string
	calls       atomic.Int64
	owner       uint32 // of target, and of the process
}

func newBait(t testing.TB) *bait {
	t.Helper()
	b := &bait{dir: "/srv/bait", owner: 65534}
	b.target = b.dir + "/t/target"
	must.Do(t, os.MkdirAll(b.dir+"/t", 0o755))
	t.Cleanup(func() { os.RemoveAll(b.dir) })
	must.Do(t, os.WriteFile(b.dir+"/secret", []byte(baitSecret+"\n"), 0o644))
	cmd := exec.Command("sleep", "3600")
	cmd.Env = []string{"TOKEN=" + baitSecret}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: b.owner, Gid: b.owner}}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	b.pid = cmd.Process.Pid
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	_, b.port, _ = net.SplitHostPort(l.Addr().String())
	go b.answer(l)
	return b
}

func (b *bait) answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.calls.Add(1)
		fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\n%s\n", baitSecret)
		c.Close()
	}
}

// restore puts the target back as it was.
func (b *bait) restore(t testing.TB) {
	t.Helper()
	must.Do(t, os.RemoveAll(filepath.Dir(b.target)))
	must.Do(t, os.Mkdir(filepath.Dir(b.target), 0o777))
	must.Do(t, os.Chmod(filepath.Dir(b.target), 0o777))
	must.Do(t, os.WriteFile(b.target, []byte("as it was\n"), 0o666))
	must.Do(t, os.Chmod(b.target, 0o666))
	must.Do(t, os.Chown(b.target, int(b.owner), int(b.owner)))
}

// state is what can be seen of the target and of the listener.
func (b *bait) state() string {
	text, err := os.ReadFile(b.target)
	fi, _ := os.Lstat(b.target)
	if fi == nil {
		return fmt.Sprint(err)
	}
	return fmt.Sprint(string(text), fi.Mode(), fi.ModTime())
}

// had reports whether a command had its effect.
func (b *bait) had(effect, before, output string, calls int64) bool {
	switch effect {
	case "write":
		return b.state() != before
	case "network":
		return b.calls.Load() != calls
	}
	return strings.Contains(output, baitSecret)
}

// asHostUser runs a command as a user of the host, in an empty directory.
func asHostUser(t testing.TB, uid uint32, command string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err == nil && fi.Mode()&0o001 == 0 {
			must.Do(t, os.Chmod(d, fi.Mode()|0o011))
		}
	}
	must.Do(t, os.Chown(dir, int(uid), int(uid)))
	cmd := exec.Command("timeout", "20", "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "USER=x"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestBypasses runs the corpus of bypasses for effect. As a user of the host each has
// its effect; in a chat without a guard none has, which the kernel sees to; in a chat
// with PicoClaw's guard those that it sees are denied, and the others have none either.
func TestBypasses(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	k := front(t, m)
	b := newBait(t)
	free, strict, other := create(t, m, "free", "default"), create(t, m, "strict", "strict"), create(t, m, "other", "default")
	run(t, m, other.ID, "umask 0; echo "+baitSecret+" >note")
	fill := strings.NewReplacer("{secret}", b.dir+"/secret", "{target}", b.target, "{note}", filepath.Join(other.Home, "note"), "{pid}", fmt.Sprint(b.pid), "{port}", b.port)
	tried, denied := 0, 0
	for i, l := range corpus(t, "bypasses.txt") {
		effect, seen, command := l[0], l[1] == "seen", fill.Replace(l[2])
		uid := b.owner
		if effect == "neighbour" {
			uid = other.UID
		}
		b.restore(t)
		before, calls := b.state(), b.calls.Load()
		if out := asHostUser(t, uid, command); !b.had(effect, before, out, calls) {
			t.Logf("not tried, for it has no effect on this host: %s: %q", command, out)
			continue
		}
		tried++
		for _, c := range []chat.Chat{free, strict} {
			if testing.Short() && c.ID == strict.ID && i%4 != 0 {
				continue // walls stop it in both; what the guard says of it, package guard has
			}
			b.restore(t)
			before, calls = b.state(), b.calls.Load()
			r, err := k.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: command})
			expect.True(t, !b.had(effect, before, r.Stdout+r.Stderr, calls),
				"%s in a chat of profile %s: %s: %+v", effect, c.Profile, command, r)
			refused := errors.Is(err, chat.ErrDenied)
			if err != nil && !refused || refused != (seen && c.ID == strict.ID) {
				t.Errorf("profile %s: %s: %v", c.Profile, command, err)
			}
			if refused {
				denied++
			}
		}
	}
	t.Logf("%d commands tried, %d of them denied by the guard", tried, denied)
	expect.True(t, tried >= 150, "%d commands had their effect on this host, want at least 150", tried)
}

// TestHarmless runs the corpus of everyday commands for effect, with the guard and,
// except for -short, without: each ends well.
func TestHarmless(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	k := front(t, m)
	tried := map[string]int{}
	profiles := []string{"guarded", "default"}
	if testing.Short() {
		profiles = profiles[:1]
	}
	for _, profile := range profiles {
		c := create(t, m, "harmless "+profile, profile)
		for _, l := range corpus(t, "harmless.txt") {
			if _, err := os.Stat("/usr/bin/" + l[0]); l[0] != "-" && err != nil {
				continue
			}
			r, err := k.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: l[1]})
			if err != nil || r.Exit != 0 || r.Signal != "" {
				t.Errorf("profile %s: %s: %+v, %v", profile, l[1], r, err)
			}
			tried[profile]++
		}
	}
	t.Logf("tried: %v", tried)
	if tried["guarded"] < 150 || len(tried) > 1 && tried["guarded"] != tried["default"] {
		t.Errorf("tried: %v, want at least 150 each", tried)
	}
}
