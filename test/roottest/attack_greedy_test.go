package roottest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackSpace: what lies in memory has a size, and what is full for A is
// not full for B.
func TestAttackSpace(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := inmateOf(t, m, "space a", "default"), inmateOf(t, m, "space b", "default")
	for _, dir := range []string{"/run/chat", "/dev/shm"} {
		t.Run(dir, func(t *testing.T) {
			outcomes(t, "A", a.try(t, "fill", dir, fmt.Sprint(64<<20)), "ENOSPC")
			outcomes(t, "control: 512 KiB", b.try(t, "fill", dir, fmt.Sprint(512<<10)), "ok")
		})
	}
	t.Run("the rest", func(t *testing.T) {
		for _, dir := range []string{"/", "/etc", "/opt", "/opt/chatd", "/run", "/dev", "/usr"} {
			outcomes(t, dir, a.try(t, "fill", dir, "1"), "EROFS EACCES")
		}
	})
	t.Run("prompt fifo", func(t *testing.T) {
		got := a.try(t, "flood-prompt", "/opt/chatd/prompt")
		var kib int
		expect.True(t, expect.Err(fmt.Sscanf(got, "ok %d", &kib)) == nil && kib >= 4 && kib <= 1024,
			"A: %s KiB, want at most a pipe", got)
		for _, step := range []func(context.Context, chat.ID) (chat.Chat, error){m.Sleep, m.Wake} {
			expect.NoError(t, expect.Err(step(operator(t.Context()), a.ID)))
		}
	})
	t.Run("output", func(t *testing.T) {
		r := run(t, m, a.ID, "yes | head -c 50000000; yes no | head -c 50000000 >&2")
		if !r.Truncated || len(r.Stdout) < chat.DefaultOutputMax-100 || len(r.Stderr) < chat.DefaultOutputMax-100 {
			t.Errorf("stdout %d, stderr %d bytes, truncated %t", len(r.Stdout), len(r.Stderr), r.Truncated)
		}
	})
}

// TestAttackReap: A leaves files in its home to break the reap, or to make it remove something
// else.
func TestAttackReap(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a, b := inmateOf(t, m, "reap a", "default"), inmateOf(t, m, "reap b", "default")
	b.sh(t, "echo keep >note")
	const kept = "/srv/keep"
	must.Do(t, os.MkdirAll(kept+"/me", 0o777))
	t.Cleanup(func() { os.RemoveAll(kept) })
	for _, dir := range []string{a.Home, "/tmp", "/var/tmp"} {
		a.sh(t, "mkdir "+dir+"/deep "+dir+"/names; ln -s "+kept+" "+dir+"/keep; ln -s "+b.Home+" "+dir+"/b; ln -s /etc "+dir+"/etc")
		outcomes(t, "nest", a.try(t, "mkdirs", dir+"/deep", "3000"), "ok")
		outcomes(t, "names", a.try(t, "names", dir+"/names"), "ok")
	}
	// A does not stop while it is taken away.
	a.typeLine(t, "while :; do mkdir -p ~/x/y; mv ~/x ~/z; ln -s "+kept+" ~/x; rm -rf ~/z ~/x; done")
	must.Do(t, m.Reap(operator(t.Context()), a.ID))
	tmp, varTmp := privateTrees(opt, a.Chat)
	for _, gone := range []string{a.Home, tmp, varTmp} {
		if _, err := os.Lstat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	for _, there := range []string{kept + "/me", b.in("note"), "/etc/passwd"} {
		expect.Is(t, expect.Err(os.Lstat(there)), nil, "reap took more than A")
	}
	left, err := exec.Command("find", filepath.Dir(opt.State), "-uid", fmt.Sprint(a.UID)).Output()
	expect.True(t, err == nil && strings.TrimSpace(string(left)) == "",
		"files of uid %d are left: %s, %v", a.UID, left, err)
}
